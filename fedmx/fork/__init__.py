"""A fork: another future of a run, from one of its rounds on, with other settings or clients.

How a run goes on once its folder is there is not told here: a fork is a run as any other.
"""

from __future__ import annotations

from fedmx.fork.branch import Fork, fork

__all__ = ["Fork", "fork"]
