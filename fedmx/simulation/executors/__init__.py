"""Who does the work of simulated clients: this process, others, or other machines."""

from __future__ import annotations

from fedmx.simulation.executors.executor import Made, Workers
from fedmx.simulation.executors.pool import Pool
from fedmx.simulation.executors.serial import Serial

__all__ = ["Made", "Pool", "Serial", "Workers"]
