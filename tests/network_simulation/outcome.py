"""Runs a seed and collects its outcome."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass, field, replace
from functools import cache

import matplotlib.figure  # noqa: F401 - now, since a run imports it in a thread, which opens files
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
        seconds_s: of virtual time, until the server was done.
        paused_s: for which the server did not run.
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
    paused_s: float = 0.0
    kills: int = 0
    weights: np.ndarray | None = None
    lines: list[str] = field(default_factory=list)


def simulated(seed: int, plan: Plan | None = None, *, verbose: bool = False) -> Outcome:
    """Run a seed with the plan that it draws, or another, and check the invariants."""
    plan = plan or drawn(seed)
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
    outcome.seconds_s, outcome.paused_s = world.ended_s, world.paused_s
    outcome.kills = world.kills
    outcome.lines = world.scheduler.lines
    if world.server is not None:
        outcome.weights = world.server.weights
    return outcome


def _open_files() -> int:
    """Return the number of open files of this process."""
    return len(os.listdir("/proc/self/fd"))


SHARE = 0.5  # of the rate of rounds that are not troubled


def share_of_rate(seed: int, plan: Plan, *, verbose: bool = False) -> tuple[Outcome, float]:
    """Run a plan with troubles; return its outcome, and its rate of rounds as a share.

    The whole is the rate of the same plan with honest clients only. Time in which the server did
    not run does not count. A share below `SHARE` is wrong.
    """
    outcome = simulated(seed, plan, verbose=verbose)
    calm_s = _calm_s(replace(plan, faults=(), behaviours={}))
    share = calm_s / (outcome.seconds_s - outcome.paused_s)
    if share < SHARE:
        outcome.wrong.append(f"rounds go on at {share:.2f} of their rate; {SHARE} is the least")
    return outcome, share


@cache
def _calm_s(plan: Plan) -> float:
    """Return the virtual seconds of a plan without troubles: few differ, so each runs once."""
    return simulated(0, plan).seconds_s
