"""A run whose updates wait on disk (`run.fold_memory_mb`) is the run in memory, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fedmx import Experiment, simulate
from fedmx.deployment.serve import serve
from fedmx.errors import ExperimentError
from fedmx.run import RunFolder
from fedmx.server.of_experiment import MB, WAITING_MB
from fedmx.server.recorder import recorded
from tests.fedmx.kinds import KINDS, experiment, outcome

ON_DISK = {"run": {"fold_memory_mb": 1}}


@pytest.mark.parametrize("kind", ["fedavg", "scaffold", "lanes", "passes", "batch norm"])
def test_it_ends_in_the_same_bits(kind: str, kind_folder: Path) -> None:
    on_disk = experiment(kind_folder, **KINDS[kind], **ON_DISK)
    in_memory = experiment(kind_folder, **KINDS[kind])
    assert outcome(on_disk) == outcome(in_memory)
    assert on_disk.digest() == in_memory.digest()


@pytest.mark.parametrize("rule", ["geometric-median", "fedfv", {"name": "own_rules:Own"}])
def test_a_rule_that_needs_whole_updates_is_refused_before_anything_runs(rule, tmp_path) -> None:
    (tmp_path / "own_rules.py").write_text(
        "from layers.logic.aggregators.fedfv import FedFV\nclass Own(FedFV): pass\n"
    )
    refused = experiment(tmp_path, logic={"aggregator": rule}, **ON_DISK)
    with pytest.raises(ExperimentError, match="slice by slice") as error:
        simulate(refused)
    assert "\n" not in str(error.value)


def test_nothing_of_it_is_in_the_run_folder(tmp_path: Path) -> None:
    """The file has no name, so that nothing is left of it however the process ends."""
    given = experiment(tmp_path, logic={"aggregator": "median"}, **ON_DISK)

    def files_of(given: Experiment, name: str) -> list[set[str]]:
        server = simulate(given)
        folder = RunFolder.create(tmp_path, name, given.to_yaml(), {"seed": 1})
        seen = []
        for _ in recorded(server, folder):
            seen.append({path.name for path in folder.path.rglob("*")})
            nameless = [name for name in _open_files() if name.startswith(str(folder.path))]
            assert any("(deleted)" in name for name in nameless) == (server.store is not None)
        return seen

    in_memory = experiment(tmp_path, logic={"aggregator": "median"})
    on_disk = files_of(given, "disk")
    assert [len(names) for names in on_disk] == [
        len(names) for names in files_of(in_memory, "memory")
    ]


def test_of_a_server_a_bounded_part_waits_in_memory_and_of_a_simulation_all(tmp_path: Path) -> None:
    given = experiment(tmp_path, logic={"aggregator": "median"})
    store = serve(given, "run").store
    assert 0 < store.waiting_bytes <= store.memory_bytes == WAITING_MB * MB
    assert simulate(given).store is None
    whole = experiment(tmp_path, logic={"aggregator": "geometric-median"})
    assert serve(whole, "run").store is None  # it cannot be folded from disk


def _open_files() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # it was open for the listing
            yield os.readlink(f"/proc/self/fd/{fd}")
