"""Faults of network, disks and clocks do not change the model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedmx.run.records import JsonLines
from tests.network_simulation.checks import model_of
from tests.network_simulation.disk import Disk
from tests.network_simulation.experiment import ALGORITHMS, Experiment
from tests.network_simulation.outcome import share_of_rate, simulated
from tests.network_simulation.plan import DRAWN, drawn, troubled
from tests.network_simulation.planted import PLANTED
from tests.network_simulation.scheduler import Scheduler

pytestmark = pytest.mark.timeout(300)  # hundreds of runs

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 100  # `make simulate` runs more
A_TEST = 25  # seeds
ENOUGH = 1000  # seeds within which a planted bug must be found


def quiet_seeds() -> Iterator[int]:
    """The first seed of each algorithm."""
    missing = set(ALGORITHMS)
    for seed in range(1000):
        algorithm = drawn(seed, quiet=True).experiment.algorithm
        if algorithm in missing:
            missing.remove(algorithm)
            yield seed


@pytest.mark.parametrize("seed", list(quiet_seeds()))
def test_an_undisturbed_deployment_is_the_plain_serial_simulation(seed: int) -> None:
    outcome = simulated(seed, drawn(seed, quiet=True))
    assert outcome.wrong == []
    assert outcome.weights is not None
    assert outcome.weights.any()
    assert outcome.weights.tobytes() == model_of(outcome.plan.experiment).tobytes()


@pytest.mark.parametrize("first", range(0, SEEDS, A_TEST))
def test_the_model_is_right_despite_faults(first: int) -> None:
    kills = steps = 0
    for seed in range(first, first + A_TEST):
        outcome = simulated(seed)
        again = f"python -m tests.network_simulation --seeds {seed} --trace"
        assert outcome.wrong == [], f"seed {seed}; again: {again}"
        kills, steps = kills + outcome.kills, steps + outcome.steps
    assert kills
    assert steps > 100 * A_TEST


ALONE = [(0, trouble) for trouble in DRAWN]
OVERLAPPING_PAUSES = 50933  # a seed that draws two
TOGETHER = [(seed, None) for seed in (*range(6), OVERLAPPING_PAUSES)]


@pytest.mark.parametrize(("seed", "trouble"), [*ALONE, *TOGETHER])
def test_rounds_go_on_with_the_honest_clients_needed(seed: int, trouble: str | None) -> None:
    outcome, _ = share_of_rate(seed, troubled(seed, trouble))
    assert outcome.wrong == []


def digests(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.network_simulation", "--seeds", "0:8", "--digests"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.check_output(command, cwd=ROOT, env=environment, text=True)
    return done


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    once = digests("1")
    assert len(set(once.split())) == 16
    assert digests("2") == once


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, record_property: Callable[[str, object], None]) -> None:
    for seed in range(ENOUGH):
        model_of(drawn(seed).experiment)  # without the bug
        with PLANTED[name]():
            found = simulated(seed).wrong
        if found:
            print(f"{name}: found after {seed + 1} seeds: {found[0]}")
            record_property("seeds", seed + 1)
            return
    pytest.fail(f"{name} was not found in {ENOUGH} seeds")


def test_a_client_that_lost_its_memory_starts_again() -> None:
    seed = next(seed for seed in range(1000) if not drawn(seed).remembers and drawn(seed).faults)
    assert simulated(seed).wrong == []


@pytest.mark.parametrize("seed", range(20))
def test_synced_records_survive_a_power_cut(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    scheduler = Scheduler(seed)
    disk = Disk(tmp_path, scheduler)
    disk.add(folder)

    def main() -> None:
        records = JsonLines(folder / "rounds.jsonl")
        records.append([{"round": 1}])
        records.sync()
        records.append([{"round": 2}])
        process.power = True
        scheduler.kill(process, power=True)

    process = scheduler.spawn("server", main)
    process.on_kill.append(lambda: disk.killed(process, folder))
    with disk.installed():
        scheduler.run(lambda: not process.alive, limit_s=60, most_steps=1000)
    left = [record["round"] for record in JsonLines(folder / "rounds.jsonl").read()]
    assert left in ([1], [1, 2])


def test_an_experiment_names_every_algorithm() -> None:
    layouts = {name: Experiment(name, 2, 2).logic() for name in ALGORITHMS}
    parts = {str((one.selector, one.aggregator, one.hooks)) for one in layouts.values()}
    assert len(parts) == len(ALGORITHMS)
