"""The root of every error that the front raises on purpose."""

from __future__ import annotations


class FedmxError(Exception):
    """Something that the user can act on: what was wrong, where, and what to do, in one line."""
