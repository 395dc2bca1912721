"""The report as one self-contained page: no external address, no script."""

from orchestrator.reports.html.page import page

__all__ = ["page"]
