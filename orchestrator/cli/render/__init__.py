"""Views as text for people. Plain, aligned, understandable without colour. Must not know: stdout, stderr, commands."""

from orchestrator.cli.render.dispatch import render

__all__ = ["render"]
