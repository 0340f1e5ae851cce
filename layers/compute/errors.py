"""What the compute layer raises."""

from __future__ import annotations


class ComputeError(Exception):
    """Root of every error of the compute layer: what was wrong, where, and what to do."""
