"""Executors: who does the work of simulated clients, this process, others, or other machines.

The order of events and the messages of a round do not belong here.
"""

from __future__ import annotations

from fedmx.simulation.executors.executor import Executor, TrainResult
from fedmx.simulation.executors.pool import ParallelExecutor
from fedmx.simulation.executors.serial import SerialExecutor

__all__ = ["TrainResult", "ParallelExecutor", "SerialExecutor", "Executor"]
