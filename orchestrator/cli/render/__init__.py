"""Views as text for people: plain, aligned, and readable without colour."""

from orchestrator.cli.render.dispatch import is_verbatim, render

__all__ = ["is_verbatim", "render"]
