"""The root of the compute layer's errors."""

from __future__ import annotations


class ComputeError(Exception):
    """Any error of the compute layer; one line on what was wrong, where, and what to do."""
