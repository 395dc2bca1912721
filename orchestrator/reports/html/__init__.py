"""The report as one self-contained HTML page, without external resources or scripts."""

from orchestrator.reports.html.page import page

__all__ = ["page"]
