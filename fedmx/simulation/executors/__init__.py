"""Who does the work of simulated clients: this process, others, or other machines."""

from __future__ import annotations

from fedmx.simulation.executors.executor import Executor, TrainResult
from fedmx.simulation.executors.pool import ParallelExecutor
from fedmx.simulation.executors.serial import SerialExecutor

__all__ = ["TrainResult", "ParallelExecutor", "SerialExecutor", "Executor"]
