"""Who does the work of simulated clients: this process, others, or other machines."""

from __future__ import annotations

from fedmx.workers.serial import Serial
from fedmx.workers.workers import Made, Workers

__all__ = ["Made", "Serial", "Workers"]
