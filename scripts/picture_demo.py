"""docs/demo.svg: a terminal with 80 columns that shows a job's plan and, after its run, its report."""

from __future__ import annotations

import io

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from orchestrator.cli.render.dispatch import render
from orchestrator.cli.render.text import Screen
from orchestrator.formats.documents import View
from scripts.migration_story import play

COLUMNS = 80
# Rich's own frame without its web font: viewing the picture must not load anything from the network.
FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font: 20px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def demo_picture() -> str:
    """The SVG file's text. Deterministic."""
    story = play()
    shown: tuple[tuple[str, View], ...] = (
        ("tradewind plan gpt.yaml", story.planned),
        ("tradewind report gpt", story.reported),
    )
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    for number, (command, view) in enumerate(shown):
        if number:
            console.print()
        console.print(Text(f"$ {command}", style="bold green"))
        screen = Screen(color=True, width=COLUMNS, command=command, file="gpt.yaml")
        console.print(Text.from_ansi(render(view, screen)))
    return console.export_svg(title="Tradewind, simulated market", theme=MONOKAI, code_format=FRAME, unique_id="demo")
