"""Where two runs part is named: round, client and step, or that they do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder
from fedmx.history import diff
from fedmx.run import RunError
from fedmx.run.records import JsonLines
from fedmx.server.server import Server
from tests.fedmx import kinds
from tests.fedmx.command_line import fedmx
from tests.fedmx.recorded_runs import TREE, changed_records, run_of

PLANT = """
import os
from dataclasses import dataclass, replace

import numpy as np

from fedmx import ClientSide, Hook, ServerSide


@dataclass(frozen=True)
class Plant(Hook):
    round: int = 0
    victim: int = 0
    step: str = "send"

    class Client(ClientSide):
        def receive(self, task, context):
            if due(self.hook, context, "receive"):
                return replace(task, weights=flipped(task.weights, bit=20))
            return task

        def send(self, update, context):
            context.keep(rounds=context.memory.get("rounds", 0) + 1)
            if due(self.hook, context, "send"):
                return replace(update, delta=flipped(update.delta))
            return update

    class Server(ServerSide):
        def conclude(self, state, context):
            if due(self.hook, context, "conclude"):
                return replace(state, weights=flipped(state.weights))
            return state


def flipped(vector, bit=0):
    changed = vector.copy()
    changed.view(np.int32)[-1] ^= 1 << bit  # a bias, on which every output depends
    return changed


def due(hook, context, step):
    planted = os.environ.get("PLANTED_BIT", f"{hook.round} {hook.victim} {hook.step}")
    client = hook.victim if context.client is None else context.client
    return planted == f"{context.round} {client} {step}"
"""

Plants = Callable[..., RunFolder]
SMALL: dict[str, Any] = {"rounds": 8, "run": {"checkpoint": {"every": 2}}}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plants]:
    """Makes runs with one flipped bit, by the settings of a hook."""
    folder, path = tmp_path_factory.mktemp("planted"), list(sys.path)
    (folder / "planted_bit.py").write_text(PLANT)

    def run(changed: dict[str, Any] = SMALL, **settings: Any) -> RunFolder:
        hooks = [{"name": "planted_bit:Plant", **settings}]
        logic = {"selector": {"name": "uniform", "fraction": 1.0}, "hooks": hooks}
        return run_of(folder, modules=folder, **{"logic": logic, **changed})

    yield run
    sys.path[:] = path


@pytest.fixture(scope="module")
def sound(planted: Plants) -> RunFolder:
    return planted()


def test_no_difference_is_told(sound: RunFolder, planted: Plants) -> None:
    report = diff(sound, planted(), modules=None)
    assert report.same
    assert report.sentence == "all 8 rounds that both have are the same bits"


def test_a_longer_run_goes_on(sound: RunFolder, planted: Plants) -> None:
    longer = planted({**SMALL, "rounds": 9})
    for pair, rounds in (((longer, sound), "9 against 8"), ((sound, longer), "8 against 9")):
        report = diff(*pair, modules=None)
        assert report.same
        for part in (f"rounds: {rounds}", "all 8 rounds", f"{longer.path} goes on to round 9"):
            assert part in report.sentence


def test_a_flipped_bit_is_told_by_round_client_and_step(sound: RunFolder, planted: Plants) -> None:
    report = diff(sound, planted(round=6, victim=4), modules=None)
    assert report.settings == (
        "logic.hooks.0.round: not given against 6",
        "logic.hooks.0.victim: not given against 4",
    )
    assert (report.divergence.round, report.divergence.client) == (6, 4)
    assert (report.step.step, report.step.agrees) == ("Plant.send", (True, True))
    assert "; round 6, client 4, after Plant.send: 1 of 7,850 values" in report.sentence


def test_a_task_that_is_decoded_to_other_bits_is_named(sound: RunFolder, planted: Plants) -> None:
    report = diff(sound, planted(round=5, victim=2, step="receive"), modules=None)
    assert (report.divergence.round, report.divergence.client) == (5, 2)
    assert (report.step.end, report.step.step) == ("client", "Plant.receive")
    assert report.step.agrees == (True, True)


def test_a_fold_that_ends_in_other_bits_is_named(sound: RunFolder, planted: Plants) -> None:
    report = diff(sound, planted(round=3, step="conclude"), modules=None)
    assert (report.divergence.round, report.divergence.client) == (3, None)
    assert report.step.record() == {
        "step": "fold",
        "end": "server",
        "differing": 1,
        "values": 7850,
        "text": "1 of 7,850 values differs, the largest by 1 unit in the last place",
        "agrees": [True, True],
    }
    assert "round 3, in the fold: the models after it differ, and its 6 upda" in report.sentence


def test_other_initial_weights_are_named(planted: Plants) -> None:
    even = {**SMALL, "rounds": 2, "compute": {**TREE["compute"], "partition": "iid"}}
    report = diff(planted(even), planted({**even, "seed": 5}), modules=None)
    assert (report.settings, report.divergence.round) == (("seed: 1 against 5",), 1)
    assert (report.step.step, report.step.agrees) == ("initial weights", (True, True))


DITTO = {"logic": {"preset": {"name": "ditto", "fraction": 0.7, "lam": 0.5}, "hooks": ["stc"]}}
BUCKETS = {"name": "bucketing", "size": 2, "rule": "median"}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "ditto": (DITTO, "logic.preset.lam"),
    "own head": ({"logic": {"preset": {"name": "fedper", "fraction": 0.7}}}, "logic.preset.name"),
    "loss": (
        {"compute": {**kinds.TREE["compute"], "loss": {"name": "logit-adjustment", "tau": 0.6}}},
        "compute.loss.tau",
    ),
    "liars": ({"attack": {"name": "min-sum", "clients": 0.34}}, "attack.name"),
    "nested": (
        {"logic": {**kinds.KINDS["nested"]["logic"], "aggregator": BUCKETS}},
        "logic.aggregator.rule",
    ),
}
"""By kind of run what changes one of its parts, and the setting that it is."""


@pytest.mark.parametrize("kind", OTHERS)
def test_runs_of_every_kind_are_compared(kind: str, tmp_path: Path, kind_folder: Path) -> None:
    changed, setting = OTHERS[kind]
    # Personal models are in the records if they are evaluated.
    compute = {**kinds.TREE["compute"], "evaluate": {"personal": True}}
    tree = {**kinds.TREE, "compute": compute, **kinds.KINDS[kind]}
    run, again, other = (
        run_of(tmp_path, modules=kind_folder, **{**tree, **more}) for more in ({}, {}, changed)
    )
    assert diff(run, again, modules=None).same
    report = diff(run, other, modules=None)
    assert any(one.startswith(setting) for one in report.settings), report.settings
    assert report.divergence.round == 1


def test_a_fault_that_is_not_in_the_run_is_told_with_the_run_that_has_none(
    sound: RunFolder, planted: Plants, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PLANTED_BIT", "7 1 send")
        faulty = planted()
    report = diff(faulty, sound, modules=None)
    assert report.settings == ()
    assert (report.divergence.round, report.divergence.client) == (7, 1)
    assert report.step.agrees == (False, True)
    assert "round 7: the updates of client 1 differ" in report.sentence
    assert f"{sound.path} recorded them; so {faulty.path} ran other code" in report.sentence


def test_a_bit_in_60_rounds_is_found_by_running_a_few_of_them(
    planted: Plants, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {
        "rounds": 60,
        "run": {"checkpoint": {"every": 10, "keep": {"every": 10}}},
        "clients": 4,
        "compute": {**TREE["compute"], "train": {"steps": 1}, "evaluate": {"every": 50}},
    }
    runs = planted(long), planted(long, round=47, victim=3)
    begun: list[int] = []
    run_round = Server._run_round

    def noted(self: Server, population: Any) -> Any:
        begun.append(self.state.round + 1)
        return run_round(self, population)

    monkeypatch.setattr(Server, "_run_round", noted)
    report = diff(*runs, modules=None)
    assert (report.divergence.round, report.divergence.client) == (47, 3)
    assert report.step.step == "Plant.send"
    assert begun == 2 * [41, 42, 43, 44, 45, 46]  # from the checkpoints of round 40


def test_clients_with_other_fates_or_samples_are_named(
    sound: RunFolder, planted: Plants, tmp_path: Path
) -> None:
    slower = planted(round=3, victim=5)
    for values, text in (
        ({"status": "lost", "reason": "too late"}, "client 5 was accepted against lost (too late)"),
        ({"samples": 7}, "samples against 7"),
    ):
        folder = tmp_path / text[:6].strip()
        other = changed_records(slower, folder, "clients.jsonl", last=True, **values)
        report = diff(sound, other, modules=None)
        assert (report.divergence.round, report.divergence.client) == (3, 5)
        assert text in report.sentence


def test_records_without_hashes_are_refused(sound: RunFolder, tmp_path: Path) -> None:
    other = changed_records(sound, tmp_path, "rounds.jsonl", chain=None)
    with pytest.raises(RunError, match="round 3 has no hashes to compare"):
        diff(sound, other, modules=None)


def test_the_command_says_it_in_a_line(sound: RunFolder, planted: Plants, tmp_path: Path) -> None:
    other = planted(round=6, victim=4)
    said = fedmx("diff", sound.path, other.path, "--own-modules", cwd=tmp_path)
    assert said.code == 3, said.err
    (line,) = said.out.splitlines()
    assert "round 6, client 4, after Plant.send: 1 of 7,850 values differs" in line


def test_connections_are_no_difference_of_a_deployment_and_a_simulation(tmp_path: Path) -> None:
    real, simulated = (run_of(tmp_path, deployed=deployed) for deployed in (True, False))
    lines = JsonLines(real.path / "rounds.jsonl")
    records = list(lines.read())

    def written(**changed: object) -> None:
        changed["chain"] = "0" * len(records[0]["chain"])
        lines.path.unlink()
        lines.append({**one, **changed} for one in records)

    written(control_bytes=4188)
    assert diff(real, simulated).divergence is None
    written(control_bytes=4188, accuracy=0.5)
    found = diff(real, simulated).divergence
    assert (found.round, found.what) == (1, "records")
    assert "accuracy" in found.text
    assert "control_bytes" not in found.text
