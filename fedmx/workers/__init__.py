"""Who does the work of simulated clients: this process, others, or other machines."""

from __future__ import annotations

from fedmx.workers.pool import Pool
from fedmx.workers.serial import Serial
from fedmx.workers.workers import Made, Workers

__all__ = ["Made", "Pool", "Serial", "Workers"]
