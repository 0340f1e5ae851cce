"""The data of a simulation are in memory once, whatever the number of its worker processes."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import simulate
from fedmx.simulation.executors import shared_memory
from fedmx.simulation.executors.executor import ExecutorFailed
from fedmx.simulation.executors.processes import ProcessBackend
from fedmx.simulation.executors.shared_memory import (
    MAX_KEPT_BYTES,
    MAX_PIPED_BYTES,
    ReplyFiles,
    SharedArrays,
    map_arrays,
)
from fedmx.simulation.executors.worker import arrays_of, use_arrays
from layers.network import Payload
from tests.fedmx.command_line import environment
from tests.fedmx.kinds import ALL, KINDS, TREE, experiment, outcome

PARTS = """
import os, signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from layers.logic import ClientSide, Hook


def arrays(log) -> dict:
    with open(log, "a") as file:
        print(os.getpid(), file=file)
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 1, 8, 8).astype(np.float32) / 16
    return {"x_train": x[400:], "y_train": y[400:], "x_test": x[:400], "y_test": y[:400]}


def mapped(place) -> dict:
    folder = Path(place)
    return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}


class _Looks(ClientSide):
    def __init__(self, hook):
        self.hook = hook

    def send(self, update, context):
        folder = Path(self.hook.folder)
        (folder / f"{os.getpid()}.maps").write_text(Path("/proc/self/maps").read_text())
        due = self.hook.kills and (update.round, update.client) == (2, 3)
        if due and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return update


@dataclass(frozen=True)
class Looks(Hook):
    folder: str = ""
    kills: bool = False

    def client(self):
        return _Looks(self)
"""


@pytest.fixture(scope="module")
def folder(kind_folder: Path) -> Path:
    """The folder with the components that the experiments here name."""
    (kind_folder / "data_parts.py").write_text(PARTS)
    return kind_folder


@pytest.fixture(scope="module")
def crew() -> Iterator[ProcessBackend]:
    """Two processes, which tests of this file use one after the other."""
    backend = ProcessBackend(2)
    yield backend
    backend.close()


def looking(folder: Path, tmp_path: Path, kills: bool = False, **data: str) -> Any:
    """An experiment whose workers write down what they have mapped."""
    hook = {"name": "data_parts:Looks", "folder": str(tmp_path), "kills": kills}
    compute = {**TREE["compute"], "data": data or "digits"}
    if data:
        del compute["normalise"]
    return experiment(folder, compute=compute, logic={**ALL, "hooks": [hook]})


def shared_file(maps: str) -> set[tuple[str, str]]:
    """The access to the run's shared arrays, and the number of their file."""
    lines = [line.split() for line in maps.splitlines() if "memfd:fedmx-data" in line]
    return {(words[1], words[4]) for words in lines}


def test_workers_map_the_arrays_of_the_run_and_a_replacement_maps_them_again(
    folder: Path, tmp_path: Path, crew: ProcessBackend
) -> None:
    given = looking(folder, tmp_path, kills=True)
    with simulate(given, crew) as simulation:
        for _ in simulation:
            pass
        ours = shared_file(Path("/proc/self/maps").read_text())
        assert len(ours) == 1
        samples = simulation.compute.samples
        assert not samples.x.flags.writeable
        assert isinstance(samples.x.base, mmap.mmap)
    assert (tmp_path / "killed").exists()
    theirs = [shared_file(path.read_text()) for path in tmp_path.glob("*.maps")]
    assert len(theirs) == 3, "two workers, and the one that replaced the killed one"
    assert all(one == ours for one in theirs)
    assert all(access == "r--s" for access, _ in ours)


def test_a_data_set_is_read_once_and_not_by_each_worker(
    folder: Path, tmp_path: Path, crew: ProcessBackend
) -> None:
    log = tmp_path / "read"
    given = looking(folder, tmp_path, name="data_parts:arrays", log=str(log))
    assert outcome(given, crew) == outcome(given)
    reads = [int(line) for line in log.read_text().split()]
    assert reads == [os.getpid()] * 2, "once for the processes, once for the serial run"


def test_arrays_that_are_a_mapped_file_stay_in_that_file(
    folder: Path, tmp_path: Path, crew: ProcessBackend
) -> None:
    rng = np.random.default_rng(0)
    for split, number in (("train", 300), ("test", 100)):
        np.save(tmp_path / f"x_{split}.npy", rng.random((number, 1, 4, 4), np.float32))
        np.save(tmp_path / f"y_{split}.npy", rng.integers(0, 3, number))
    given = looking(folder, tmp_path, name="data_parts:mapped", place=str(tmp_path))
    assert outcome(given, crew) == outcome(given)
    theirs = [path.read_text() for path in tmp_path.glob("*.maps")]
    workers = [maps for maps in theirs if "memfd:fedmx-data" in maps]
    assert workers
    assert all(f"{tmp_path}/x_train.npy" in maps for maps in workers)


def test_the_data_are_in_a_file_without_a_name_where_memory_has_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> int:
        raise OSError(errno.ENOSYS, "there are no such files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(shared_memory.tempfile, "tempdir", str(tmp_path))
    given = experiment(folder, **KINDS["assets"])
    serial = outcome(given)
    backend = ProcessBackend(1)
    try:
        assert outcome(given, backend) == serial
        assert list(tmp_path.iterdir()) == []
    finally:
        backend.close()


def test_a_data_set_without_room_is_one_line(
    folder: Path, crew: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    gc.collect()  # garbage of another test may hold one, and be freed meanwhile
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ExecutorFailed, match=r"no room for the data set .*No space left"):
        simulate(experiment(folder), crew)
    assert len(os.listdir("/proc/self/fd")) == open_files


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.arange(12, dtype=">f8").reshape(3, 2, 2)[:, ::-1],
        np.zeros((0, 3), np.float32),
        np.array([True, False]),
        np.arange(6).reshape(2, 3).T,
    ],
)
def test_mapped_arrays_are_equal_and_cannot_be_changed(array: np.ndarray) -> None:
    shared = SharedArrays([np.ones(5), array, np.ones(1)])
    first, found, last = map_arrays(shared.descriptor, shared.places)
    shared.close()
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(np.concatenate([first, last]), np.ones(6))
    for one in (first, found):
        with pytest.raises(ValueError, match="read-only"):
            one[...] = 0


def test_changes_of_a_mapped_file_that_are_in_memory_alone_are_not_lost(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    for mode, place in (("c", ""), ("r", str(tmp_path / "x.npy")), ("r+", str(tmp_path / "x.npy"))):
        array = np.load(tmp_path / "x.npy", mmap_mode=mode)[2:8]
        if mode == "c":
            array[0] = 77
        shared = SharedArrays([array])
        assert shared.places[0].path == place
        np.testing.assert_array_equal(map_arrays(shared.descriptor, shared.places)[0], array)
        shared.close()


@pytest.mark.parametrize("kind", ["assets", "fedavg"])
def test_an_assembly_of_shared_arrays_has_all_data_of_the_first(kind: str, folder: Path) -> None:
    from fedmx.assembly.assembly import Assembly

    first, second = (Assembly(experiment(folder, **KINDS[kind])) for _ in range(2))
    contents, arrays = arrays_of(first)
    use_arrays(second, contents, arrays)
    assert second.data.dataset is not first.data.dataset
    assert second.data.dataset.train.x is first.data.dataset.train.x
    for client in range(TREE["clients"]):
        ours, theirs = first.samples_of(client), second.samples_of(client)
        np.testing.assert_array_equal(ours.x, theirs.x)
        np.testing.assert_array_equal(ours.y, theirs.y)
    assert second.sizes() == first.sizes()
    whole, shared = list(first.parts[0]), second.parts[0]
    for found, expected in zip(
        [*shared, *shared[1:4:2], shared[-1]], [*whole, *whole[1:4:2], whole[-1]], strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(IndexError):
        shared[len(whole)]
    assert second.data.test_samples.x is first.data.test_samples.x
    assert second.asset_samples.keys() == first.asset_samples.keys()


def test_replies_of_any_size_come_in_their_order() -> None:
    ours = ReplyFiles()
    theirs = ReplyFiles([os.dup(one) for one in ours.descriptors])
    sizes = [1, MAX_PIPED_BYTES + 1, 5, MAX_KEPT_BYTES + 1, MAX_PIPED_BYTES * 2, MAX_KEPT_BYTES * 2]
    sent: list[tuple[bytes, bytes]] = []
    for number, size in enumerate(sizes):
        reply = bytes([number]) * size
        parts = (memoryview(reply)[: size // 3], memoryview(b""), memoryview(reply)[size // 3 :])
        sent.append((theirs.write(Payload(parts, size, "reply")), reply))
        if len(sent) == 2:  # a worker may be two replies ahead
            message, expected = sent.pop(0)
            assert ours.read(message) == expected
    assert ours.read(sent[0][0]) == sent[0][1]
    held = sum(os.fstat(one).st_size for one in ours.descriptors)
    assert held <= MAX_KEPT_BYTES
    ours.close()
    theirs.close()


def _open_files(pid: int) -> list[str]:
    """Return what a process has open; it may close some of them meanwhile."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(descriptor))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_run_leaves_no_file_with_its_data(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    tree = {**TREE, "rounds": 2}
    long = {"compute": {**TREE["compute"], "train": {"batch_size": 1, "epochs": 100_000}}}
    (folder / "long.yaml").write_text(json.dumps({**tree, **long}))
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-m", "fedmx", "run", "long.yaml", "--executor", "processes:2"]
    temporary = {**environment(), "TMPDIR": str(tmp_path)}
    unblocked = "import signal, os, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run = subprocess.Popen(
        [sys.executable, "-c", unblocked + "os.execv(sys.argv[1], sys.argv[1:])", *command],
        cwd=folder,
        env=temporary,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    while "run folder" not in run.stderr.readline():
        assert run.poll() is None
    held = _open_files(run.pid)
    run.send_signal(number)
    run.communicate(timeout=60)
    assert any("memfd:fedmx-data" in one for one in held)
    assert run.returncode in (130, -signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []
    assert {one for one in set(os.listdir("/dev/shm")) - before if "fedmx" in one} == set()
