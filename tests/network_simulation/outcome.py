"""Runs a seed and collects its outcome."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass, field

import numpy as np

from tests.network_simulation.checks import check
from tests.network_simulation.plan import Plan, drawn
from tests.network_simulation.scheduler import Stuck
from tests.network_simulation.world import World


@dataclass
class Outcome:
    """The outcome of a seed.

    Attributes:
        seed: the seed.
        plan: what it drew.
        wrong: what must not have happened; empty: nothing.
        trace: the SHA-256 of the trace.
        steps: of the scheduler.
        seconds_s: of virtual time.
        kills: how many processes were killed.
        weights: the final model.
        lines: the trace, if it was asked for.
    """

    seed: int
    plan: Plan
    wrong: list[str] = field(default_factory=list)
    trace: str = ""
    steps: int = 0
    seconds_s: float = 0.0
    kills: int = 0
    weights: np.ndarray | None = None
    lines: list[str] = field(default_factory=list)


def simulated(seed: int, *, quiet: bool = False, verbose: bool = False) -> Outcome:
    """Run a seed and check its invariants."""
    plan = drawn(seed, quiet)
    outcome = Outcome(seed, plan)
    gc.freeze()  # objects from before the run are not searched for leaks
    world, files = World(seed, plan, verbose), _open_files()
    try:
        try:
            world.simulate()
        except Stuck as stuck:
            outcome.wrong.append(f"{stuck}; done: {sorted(world.done)}")
        outcome.wrong += check(world)
        if (left := _open_files()) != files:
            outcome.wrong.append(f"{left} files are open, and were {files}")
    finally:
        world.close()
        gc.unfreeze()
    outcome.trace, outcome.steps = world.scheduler.trace, world.scheduler.steps
    outcome.seconds_s, outcome.kills = world.scheduler.now_s, world.kills
    outcome.lines = world.scheduler.lines
    if world.server is not None:
        outcome.weights = world.server.weights
    return outcome


def _open_files() -> int:
    """Return the number of open files of this process."""
    return len(os.listdir("/proc/self/fd"))
