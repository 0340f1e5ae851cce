"""Reports on runs: an HTML page, a table for the terminal, tables and figures for papers.

Reports only read run folders.
"""

from __future__ import annotations

from fedmx.report.comparison import Comparison
from fedmx.report.page import write_page, write_report

__all__ = ["Comparison", "write_page", "write_report"]
