"""Views as text for people. Plain, aligned, understandable without colour."""

from orchestrator.cli.render.dispatch import is_verbatim, render

__all__ = ["is_verbatim", "render"]
