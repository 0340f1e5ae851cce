"""The experiment: its schema, and how it is read, overridden, checked and written.

How its components are built is not decided here.
"""

from __future__ import annotations

from fedmx.experiment.model import Experiment
from fedmx.experiment.sections import ExecutorSection

__all__ = ["ExecutorSection", "Experiment"]
