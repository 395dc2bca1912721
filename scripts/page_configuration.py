"""docs/configuration.md from the tree of settings."""

from __future__ import annotations

from orchestrator.config import SETTINGS, Setting

_INTRODUCTION = """\
<!-- Made by `python -m scripts.gen_docs` from orchestrator/config/settings.py. Change that, not this. -->

# Configuration

Every setting has a default: without any configuration, Tradewind uses the simulated market of this machine. A setting
comes from the first of these that names it:

1. a flag of the command line, such as `--state-dir`;
2. its environment variable;
3. `tradewind.toml` in the working folder;
4. `tradewind.toml` in the user's configuration folder (`~/.config/tradewind` on Linux);
5. its default.

`tradewind config show --origins` prints every value in force and where it comes from. Relative paths are relative to
the file that names them, or to the working folder. In an environment variable, lists are separated by commas. A
mistake in any of these places is reported with file and line, and the exit code is 3. Reading settings creates nothing.

## Settings

| setting | default | meaning |
|---|---|---|
"""

_EXAMPLE = """
## A file with every setting

Save as `tradewind.toml` what you want to change.

```toml
"""


def configuration_page() -> str:
    rows = "".join(
        f"| `{setting.name}`<br>`{setting.variable}` | {_default(setting)} | {setting.meaning} |\n"
        for setting in SETTINGS.values()
    )
    return _INTRODUCTION + rows + _EXAMPLE + example_settings() + "```\n"


def example_settings() -> str:
    """A tradewind.toml with every setting set to its example."""
    lines, table = [], ""
    for setting in SETTINGS.values():
        home, _, key = setting.name.rpartition(".")
        if home != table:
            lines += ["", f"[{home}]"]
            table = home
        lines.append(f"{key} = {setting.example}")
    return "\n".join(lines) + "\n"


def _default(setting: Setting) -> str:
    value = setting.default
    if value is None or (setting.default_text and not value):
        return setting.default_text
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{', '.join(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
