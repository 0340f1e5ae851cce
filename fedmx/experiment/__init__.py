"""The experiment file: what it may say, how it is read, changed, checked and written again."""

from __future__ import annotations

from fedmx.components.component import Component
from fedmx.experiment.model import Experiment
from fedmx.experiment.overrides import apply_overrides
from fedmx.experiment.sections import ExecutorSection

__all__ = ["Component", "ExecutorSection", "Experiment", "apply_overrides"]
