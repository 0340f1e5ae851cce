"""Small projects to begin with: an experiment, its code and a test that runs.

What runs an experiment does not belong here.
"""

from __future__ import annotations

from fedmx.new.kinds import KINDS, Kind
from fedmx.new.project import write_project

__all__ = ["KINDS", "Kind", "write_project"]
