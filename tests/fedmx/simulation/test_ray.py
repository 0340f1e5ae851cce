"""Ray: a head and two nodes with their own processes; the same bits, also after a loss."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedmx import Experiment, FedmxError, simulate
from fedmx.history import replay
from fedmx.simulation.executors.ray import Actor, RayBackend, _error_line
from layers.extras import install
from tests.fedmx import kinds
from tests.fedmx.command_line import ROOT, fedmx
from tests.fedmx.kinds import KINDS
from tests.fedmx.recorded_runs import record, run_of

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

pytest.importorskip("ray", reason="needs Ray")

PARTS = """
import os, signal
from dataclasses import dataclass
from pathlib import Path

from layers.logic import ClientSide, Hook


@dataclass(frozen=True)
class WaitsForItsEnd(Hook):
    flag: str = ""

    class Client(ClientSide):
        def send(self, update, context):
            flag = Path(self.hook.flag)
            if (update.client, update.round) == (3, 2) and not flag.exists():
                import ray

                found = flag.with_suffix(".new")
                found.write_text(ray.get_runtime_context().get_node_id())
                found.rename(flag)
                while True:
                    signal.pause()
            return update
"""
DATA = """
import os
from dataclasses import dataclass
from pathlib import Path

from sklearn.datasets import load_digits

from layers.logic import ClientSide, Hook


def arrays(log) -> dict:
    with open(log, "a") as file:
        print(os.getpid(), file=file)
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 1, 8, 8).repeat(4, axis=0)  # large enough for the object store
    y = y.repeat(4)
    return {"x_train": x[2000:], "y_train": y[2000:], "x_test": x[:2000], "y_test": y[:2000]}


@dataclass(frozen=True)
class Looks(Hook):
    folder: str = ""

    class Client(ClientSide):
        def send(self, update, context):
            path = Path(self.hook.folder, f"{os.getpid()}.maps")
            path.write_text(Path("/proc/self/maps").read_text())
            return update
"""
# Ray gives its workers a low priority. Beside busy processes they would need minutes to start.
PRIORITY = {"RAY_worker_niceness": "0"}
TREE: dict[str, Any] = {**kinds.TREE, "logic": {"preset": {"name": "stc", "fraction": 1.0}}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without a core for workers, and two nodes with one each."""
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.update(PYTHONPATH=str(ROOT), RAY_USAGE_STATS_ENABLED="0", OMP_NUM_THREADS="1")
    os.environ.update(PRIORITY)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()
    os.environ.clear()
    os.environ.update(before)


def experiment(folder: Path, **changed: Any) -> Experiment:
    return Experiment.parse(
        json.dumps({**TREE, **changed}), "ray.yaml", folder=folder, modules=None
    )


def outcome(given: Experiment) -> list[Any]:
    with simulate(given) as simulation:
        rounds = [(one.accuracy, one.loss, one.report.traffic) for one in simulation]
        return [*rounds, simulation.weights.tobytes()]


# They differ in what goes to workers and comes back; test_processes.py has every kind.
ON_RAY = (  # in groups, since Ray needs minutes for all of them on a busy machine
    ("projected stc", "passes"),
    ("scaffold", "online knapsack"),
    ("asynchronous", "batch norm", "assets", "round memory", "numpy"),
    ("secure sum", "tree of noise", "liars", "loss", "loss with a reference"),
)
REPLAYED = ("projected stc", "scaffold", "online knapsack")


@pytest.mark.parametrize("group", ON_RAY, ids=lambda group: group[0])
def test_two_nodes_give_the_bits_of_one_process_also_in_replay(
    cluster: Any, kind_folder: Path, tmp_path: Path, group: Sequence[str]
) -> None:
    backend = RayBackend(None, cluster.address)
    try:
        for kind in group:
            given = kinds.experiment(kind_folder, **KINDS[kind])
            by_ray = record(given, tmp_path / "ray", modules=kind_folder, backend=backend)
            by_one = record(given, tmp_path / "one", modules=kind_folder)
            # The chain has every record, the hash of every update and of every model in it.
            chains = [[one["chain"] for one in run.rounds()] for run in (by_ray, by_one)]
            assert chains[0] == chains[1], kind
            if kind in REPLAYED:
                assert replay(by_ray).same is True
                parts = {
                    replay(by_ray, one["round"], one["client"]).same for one in by_ray.clients(3)
                }
                assert parts <= {True, None}
                assert True in parts
    finally:
        backend.close()  # its cores are for the next test


def test_ray_replays_what_one_process_recorded(cluster: Any, tmp_path: Path) -> None:
    run = run_of(tmp_path, **KINDS["projected stc"])
    on_ray = json.dumps({"ray": {"address": cluster.address}})
    assert replay(run, overrides=[f"executor={on_ray}"]).same is True


def test_two_nodes_give_the_bits_of_one_process_when_one_is_killed_in_mid_round(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ray_parts.py").write_text(PARTS)
    flag = tmp_path / "waits"
    logic = {**TREE["logic"], "hooks": [{"name": "ray_parts:WaitsForItsEnd", "flag": str(flag)}]}
    flag.write_text("")
    serial = outcome(experiment(tmp_path, logic=logic))
    on_ray = experiment(tmp_path, logic=logic, executor={"ray": {"address": cluster.address}})
    flag.unlink()
    killer = threading.Thread(target=_kill_the_node_named_in, args=(cluster, flag), daemon=True)
    killer.start()
    with caplog.at_level(logging.WARNING, "fedmx.executors"):
        assert outcome(on_ray) == serial
    killer.join()
    result = [record.getMessage() for record in caplog.records if record.name == "fedmx.executors"]
    assert any(
        "client 3 in round 2" in one and "another worker repeats it" in one for one in result
    ), result


def _kill_the_node_named_in(cluster: Any, flag: Path) -> None:
    while not flag.exists():  # on a busy machine Ray needs minutes to start its workers
        time.sleep(0.05)
    named = flag.read_text()
    (node,) = [node for node in cluster.nodes if node.node_id == named]
    cluster.worker_nodes.discard(node)
    node.kill_raylet()


def test_the_data_set_is_read_once_and_mapped_from_the_store(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "ray_data.py").write_text(DATA)
    data = {"name": "ray_data:arrays", "log": str(tmp_path / "read")}
    compute = {**TREE["compute"], "data": data}
    logic = {**TREE["logic"], "hooks": [{"name": "ray_data:Looks", "folder": str(tmp_path)}]}
    executor = {"ray": {"address": cluster.address, "workers": 1}}
    given = experiment(tmp_path, compute=compute, logic=logic, executor=executor)
    with simulate(given) as simulation:
        samples = simulation.compute.samples
        for _ in simulation:
            pass
        ours = _mapped_at(Path("/proc/self/maps").read_text(), samples.x)
    assert not samples.x.flags.writeable
    assert "plasma" in ours
    assert (tmp_path / "read").read_text().split() == [str(os.getpid())]
    (seen,) = tmp_path.glob("*.maps")
    assert "plasma" in seen.read_text()


def _mapped_at(maps: str, array: Any) -> str:
    """Return the line of the mapping that holds the start of an array."""
    for line in maps.splitlines():
        start, stop = (int(end, 16) for end in line.split()[0].split("-"))
        if start <= array.ctypes.data < stop:
            return line
    return ""


def test_ray_starts_on_this_machine_without_an_address(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(json.dumps(TREE))
    model = []
    for executor, more in (("serial", {}), ("ray", {"PYTHONWARNINGS": "ignore", **PRIORITY})):
        result = fedmx("run", "plain.yaml", "--executor", executor, cwd=tmp_path, **more)
        assert result.code == 0, result.err
        lines = result.err.splitlines()
        known = ("round ", "run folder", "warning: no worker has a core")  # on a busy machine
        assert all(line.startswith(known) for line in lines), result.err
        model.append((tmp_path / result.out.split("model:")[1].split()[0]).read_bytes())
    assert model[0] == model[1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("The actor died.\n\tThe actor's node died: 17\n  Bye.", "The actor's node died: 17"),
        ("A Node left.\nTraceback:\n ValueError: it is no part\n", "ValueError: it is no part"),
        ("The actor died.\n  It was killed.\n", "It was killed."),
        (" \n", "RuntimeError"),
        (f"OSError: {'x' * 400}", f"OSError: {'x' * 291}"),
    ],
)
def test_an_error_of_ray_is_shown_by_its_most_informative_line(text: str, line: str) -> None:
    assert _error_line(RuntimeError(text)) == line


def test_a_worker_is_in_the_folder_of_the_simulation_if_its_node_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.breakpointhook", None)
    (tmp_path / "here").mkdir()
    for folder in (tmp_path / "here", tmp_path / "missing"):
        Actor(str(folder))
        assert Path.cwd() == tmp_path / "here"


def test_a_missing_cluster_fails_in_one_line() -> None:
    with pytest.raises(FedmxError, match=r"ray: .* 127.0.0.1:1") as raised:
        RayBackend(address="127.0.0.1:1")
    assert len(str(raised.value).splitlines()) == 1


def test_without_ray_one_line_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(json.dumps(TREE))
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray here')")
    code = "import sys; sys.path.insert(0, '.'); import fedmx.cli as c; sys.exit(c.main())"
    result = fedmx("run", "plain.yaml", "--executor", "ray", cwd=tmp_path, code=code)
    assert install("ray") in result.error_text
