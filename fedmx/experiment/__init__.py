"""The experiment: its schema, and how it is read, overridden, checked and written.

What its components mean is not decided here.
"""

from __future__ import annotations

from fedmx.components.component import Component
from fedmx.experiment.model import Experiment
from fedmx.experiment.overrides import apply_overrides
from fedmx.experiment.sections import ExecutorSection

__all__ = ["Component", "ExecutorSection", "Experiment", "apply_overrides"]
