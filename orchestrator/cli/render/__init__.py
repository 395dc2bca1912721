"""Views as text for people. Plain, aligned, understandable without colour."""

from orchestrator.cli.render.dispatch import render

__all__ = ["render"]
