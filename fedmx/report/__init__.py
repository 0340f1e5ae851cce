"""Reports on runs: one HTML page, or a table for the terminal.

Nothing here changes a run.
"""

from __future__ import annotations

from fedmx.report.page import write_report
from fedmx.report.terminal import summary_text

__all__ = ["summary_text", "write_report"]
