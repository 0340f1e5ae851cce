"""Worker processes: the bits of one process, one copy of the data, and any death of a worker."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import logging
import mmap
import os
import select
import signal
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import psutil
import pytest

from fedmx import Assembly, Experiment, ExperimentError, simulate
from fedmx.simulation.executors import processes, shared_memory
from fedmx.simulation.executors.executor import ExecutorFailed
from fedmx.simulation.executors.parallel import WorkerDied
from fedmx.simulation.executors.processes import MAX_EARLY_DEATHS, ProcessBackend
from fedmx.simulation.executors.worker import arrays_of, use_arrays
from layers.logic import ClientFailed
from tests.fedmx.command_line import ended, fedmx, started
from tests.fedmx.fork_server import start_copies
from tests.fedmx.kinds import ALL, KINDS, TREE, experiment, outcome

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

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


class _Part(Hook):
    whom = None

    class Client(ClientSide):
        def send(self, update, context):
            if self.hook.whom is None or (update.client, update.round) == (self.hook.whom, 2):
                self.hook._act()
            return update


@dataclass(frozen=True)
class Kills(_Part):
    whom: int = 0
    flag: str = ""

    def _act(self):
        if not self.flag or not Path(self.flag).exists():
            if self.flag:
                Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fails(_Part):
    whom: int = 0
    how: str = "raise"

    def _act(self):
        if self.how == "breakpoint":
            breakpoint()
        raise ValueError("this client will not")


@dataclass(frozen=True)
class Looks(_Part):
    folder: str = ""

    def _act(self):
        maps = Path("/proc/self/maps").read_text()
        Path(self.folder, f"{os.getpid()}.maps").write_text(maps)
"""


@pytest.fixture(scope="module", autouse=True)
def _copies() -> None:
    """The processes of this file are started as a user's are."""


@pytest.fixture(scope="module")
def folder(kind_folder: Path) -> Path:
    """The folder with the components that the experiments here name."""
    (kind_folder / "worker_parts.py").write_text(PARTS)
    return kind_folder


@pytest.fixture(scope="module")
def crew() -> Iterator[ProcessBackend]:
    """Two processes, which all tests of this file use one after the other."""
    backend = ProcessBackend(2)
    yield backend
    backend.close()


def hook(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": f"worker_parts:{name}", **settings}


# --- results, deaths and failures ------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_many_processes_have_the_bits_of_one(kind: str, folder: Path, crew: ProcessBackend) -> None:
    given = experiment(folder, **KINDS[kind])
    assert outcome(given, crew) == outcome(given)


def test_another_worker_repeats_the_task_of_a_killed_one_with_the_same_bits(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, crew: ProcessBackend
) -> None:
    flag = tmp_path / "killed"
    hooks = [hook("Kills", whom=3, flag=str(flag))]
    given = experiment(folder, logic={"preset": {"name": "stc", "fraction": 1.0}, "hooks": hooks})
    flag.touch()
    serial = outcome(given)
    flag.unlink()
    with caplog.at_level(logging.WARNING, "fedmx.executors"):
        assert outcome(given, crew) == serial
    (message,) = [record.getMessage() for record in caplog.records]
    for part in ("worker process ", "SIGKILL", "client 3 in round 2"):
        assert part in message


@pytest.mark.parametrize(
    ("start", "how"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 15)", "was ended by SIGTERM"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL, perhaps for lack of memory"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
    ],
    ids=["code", "terminated", "killed", "without a name"],
)
def test_workers_that_end_as_soon_as_they_start_are_not_replaced_for_ever(
    start: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START", start)
    backend = ProcessBackend(1)
    deaths = [died(backend) for _ in range(MAX_EARLY_DEATHS)]
    with pytest.raises(ExecutorFailed) as caught:
        backend.wait()
    backend.close()
    assert [death.how for death in deaths] == [how] * MAX_EARLY_DEATHS
    assert len({death.who for death in deaths}) == MAX_EARLY_DEATHS  # each has its process
    expected = f"worker processes end before they have any work; the last one {how}"
    assert str(caught.value) == expected


# A worker that sends each message back, until its pipe is closed.
ECHO = """
import sys
from multiprocessing.connection import Connection

pipe = Connection(int(sys.argv[1]))
try:
    while True:
        pipe.send_bytes(b"p" + pipe.recv_bytes())
except (EOFError, OSError):
    pass
"""


def died(backend: ProcessBackend) -> WorkerDied:
    """Wait for the death of a backend's only worker."""
    number, death = backend.wait()
    assert number == 0
    assert isinstance(death, WorkerDied)
    return death


def echoed(backend: ProcessBackend) -> bool:
    """Whether a backend's only worker gets a job, and its reply is read."""
    backend.submit(0, [b"a job"])
    return backend.wait() == (0, msgpack.packb([b"a job"]))


def test_early_deaths_count_anew_after_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(_children(os.getpid()))
    monkeypatch.setattr(processes, "START", "raise SystemExit(3)")
    backend = ProcessBackend(1)
    for _ in range(MAX_EARLY_DEATHS - 1):
        assert died(backend).how == "ended with exit code 3"
    monkeypatch.setattr(processes, "START", ECHO)
    died(backend)
    assert echoed(backend)
    monkeypatch.setattr(processes, "START", "raise SystemExit(3)")
    (worker,) = set(_children(os.getpid())) - before
    os.kill(worker, signal.SIGTERM)
    ends = [died(backend).how for _ in range(MAX_EARLY_DEATHS)]
    assert ends == ["was ended by SIGTERM", *["ended with exit code 3"] * (MAX_EARLY_DEATHS - 1)]
    with pytest.raises(ExecutorFailed):
        backend.wait()
    backend.close()


@pytest.mark.parametrize(
    ("of", "method"),
    [(Connection, "send_bytes"), (shared_memory.ReplyFiles, "read")],
    ids=["a job", "a reply"],
)
def test_a_worker_whose_message_was_interrupted_is_replaced(
    of: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "START", ECHO)
    backend = ProcessBackend(1)
    assert echoed(backend)
    with monkeypatch.context() as patch:
        patch.setattr(of, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            echoed(backend)
    death = died(backend)
    assert death.who.startswith("worker process ")
    assert death.how == "ended with exit code 0"
    assert echoed(backend)
    backend.close()


@pytest.mark.parametrize(
    ("start", "patience_s", "code"),
    [(ECHO, 60.0, 0), ("import signal; signal.pause()", 0.01, -signal.SIGKILL)],
    ids=["notices it", "does not end"],
)
def test_a_worker_ends_with_its_backend_or_is_killed(
    start: str, patience_s: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _children(os.getpid())
    monkeypatch.setattr(processes, "START", start)
    monkeypatch.setattr(processes, "EXIT_TIMEOUT_S", patience_s)
    backend = ProcessBackend(1)
    (worker,) = (one.process for one in backend._processes)
    assert len(_children(os.getpid())) == len(before) + 1
    backend.close()
    assert worker.returncode == code
    assert _children(os.getpid()) == before


def test_an_error_in_a_hook_comes_back_with_its_trace(folder: Path, crew: ProcessBackend) -> None:
    logic = {**ALL, "hooks": [hook("Fails", whom=1)]}
    with pytest.raises(ClientFailed, match="client 1, round 2: ValueError: this client") as raised:
        outcome(experiment(folder, logic=logic), crew)
    line = PARTS.splitlines().index('        raise ValueError("this client will not")') + 1
    assert f'worker_parts.py", line {line}, in _act' in str(raised.value.__cause__)
    assert raised.value.__cause__.place == f"{folder / 'worker_parts.py'}:{line}"
    del raised  # its traceback keeps this frame, and so the data


def test_a_breakpoint_in_a_worker_is_refused(folder: Path, crew: ProcessBackend) -> None:
    logic = {**ALL, "hooks": [hook("Fails", how="breakpoint")]}
    with pytest.raises(ClientFailed, match="executor: serial"):
        outcome(experiment(folder, logic=logic), crew)


def test_an_experiment_that_workers_cannot_build_fails_with_the_reason(
    folder: Path, tmp_path: Path, crew: ProcessBackend
) -> None:
    (tmp_path / "only_once.py").write_text(
        "from pathlib import Path\n"
        "from kind_models import Dropping as Model\n"
        "Path(__file__).unlink()\n"
    )
    sys.path.append(str(folder))
    given = Experiment.parse(
        json.dumps({**TREE, "compute": {**TREE["compute"], "model": "only_once:Model"}}),
        folder=tmp_path,
        modules=None,
    )
    with pytest.raises(ExecutorFailed, match="'only_once'"):
        outcome(given, crew)


def test_an_object_that_workers_cannot_receive_is_refused_by_name() -> None:
    tree = {**TREE, "compute": {**TREE["compute"], "model": lambda: None}, "executor": "processes"}
    with pytest.raises(ExperimentError, match=r"compute.model: .*executor: serial") as raised:
        simulate(Experiment(**tree))
    assert len(str(raised.value).splitlines()) == 1


def test_the_name_alone_starts_a_process_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    start_copies(monkeypatch.setattr)
    backend = Experiment(**{**TREE, "executor": "processes"}).executor.start()
    try:
        assert backend.size == len(os.sched_getaffinity(0))
    finally:
        backend.close()


def test_files_shared_memory_and_processes_do_not_grow_from_round_to_round(
    folder: Path, crew: ProcessBackend
) -> None:
    preset = {"name": "stc", "fraction": 1.0}
    with simulate(experiment(folder, rounds=30, logic={"preset": preset}), crew) as simulation:
        seen = []
        for round in simulation:
            if round.round % 10 == 0:
                open_files = len(os.listdir("/proc/self/fd"))
                seen.append((open_files, _shared_bytes(), _children(os.getpid())))
    (files, *rest), *later = seen
    assert [more for more, *_ in later if more > files] == []  # earlier tests' files may go
    assert [others for _, *others in later] == [rest, rest]


def _shared_bytes() -> list[int]:
    """The sizes of the memory that this process shares with its workers."""
    return sorted(
        path.stat().st_size
        for path, name in _open_files(os.getpid()).items()
        if name.startswith("/memfd:fedmx (deleted)")
    )


def _open_files(pid: int) -> dict[Path, str]:
    """The names of a process's open files by descriptor; some may be closed meanwhile."""
    found = {}
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[descriptor] = os.readlink(descriptor)
    return found


def _children(pid: int) -> list[int]:
    return sorted(child.pid for child in psutil.Process(pid).children())


# --- the data are in memory once -------------------------------------------------------------


def looking(folder: Path, tmp_path: Path, *more: dict[str, Any], **data: str) -> Experiment:
    """An experiment whose workers write down their memory maps."""
    compute = {**TREE["compute"], "data": data or "digits"}
    if data:
        del compute["normalise"]
    hooks = [hook("Looks", folder=str(tmp_path)), *more]
    return experiment(folder, compute=compute, logic={**ALL, "hooks": hooks})


def shared_file(maps: str) -> set[tuple[str, str]]:
    """The access to the run's shared arrays, and the number of their file."""
    lines = [line.split() for line in maps.splitlines() if "memfd:fedmx-data" in line]
    return {(words[1], words[4]) for words in lines}


def test_a_run_that_failed_frees_its_data_at_once(folder: Path, crew: ProcessBackend) -> None:
    gc.disable()
    try:
        before = shared_file(Path("/proc/self/maps").read_text())
        with pytest.raises(ClientFailed):
            outcome(experiment(folder, logic={**ALL, "hooks": [hook("Fails")]}), crew)
        assert shared_file(Path("/proc/self/maps").read_text()) == before
    finally:
        gc.enable()


def test_workers_map_the_arrays_of_the_run_and_a_replacement_maps_them_again(
    folder: Path, tmp_path: Path, crew: ProcessBackend
) -> None:
    given = looking(folder, tmp_path, hook("Kills", whom=3, flag=str(tmp_path / "killed")))
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
    given = looking(folder, tmp_path, name="worker_parts:arrays", log=str(log))
    assert outcome(given, crew) == outcome(given)
    reads = [int(line) for line in log.read_text().split()]
    assert reads == [os.getpid()] * 2, "once for the processes, once for the serial run"


def test_arrays_of_a_mapped_file_stay_in_that_file(
    folder: Path, tmp_path: Path, crew: ProcessBackend
) -> None:
    rng = np.random.default_rng(0)
    for split, number in (("train", 300), ("test", 100)):
        np.save(tmp_path / f"x_{split}.npy", rng.random((number, 1, 4, 4), np.float32))
        np.save(tmp_path / f"y_{split}.npy", rng.integers(0, 3, number))
    given = looking(folder, tmp_path, name="worker_parts:mapped", place=str(tmp_path))
    assert outcome(given, crew) == outcome(given)
    theirs = [path.read_text() for path in tmp_path.glob("*.maps")]
    workers = [maps for maps in theirs if "memfd:fedmx-data" in maps]
    assert workers
    assert all(f"{tmp_path}/x_train.npy" in maps for maps in workers)


def test_without_files_in_memory_the_data_are_in_a_file_without_a_name(
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


def test_a_data_set_without_room_fails_in_one_line_and_leaves_no_file_open(
    folder: Path, crew: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ExecutorFailed, match=r"data set .*No space left"):
        simulate(experiment(folder), crew)
    assert len(os.listdir("/proc/self/fd")) == open_files


@pytest.mark.parametrize("kind", ["assets", "fedavg"])
def test_an_assembly_with_shared_arrays_has_all_data_of_the_first(kind: str, folder: Path) -> None:
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
    for whole, shared in zip(map(list, first.parts), second.parts, strict=True):
        for found, expected in zip(
            [*shared, *shared[1:4:2], shared[-1]], [*whole, *whole[1:4:2], whole[-1]], strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        with pytest.raises(IndexError):
            shared[len(whole)]
    assert second.evaluated_samples.x is first.evaluated_samples.x
    assert second.asset_samples.keys() == first.asset_samples.keys()


# --- from the command line -------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_run_leaves_no_worker_and_no_file(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The workers would train for minutes."""
    long = {"compute": {**TREE["compute"], "train": {"batch_size": 1, "epochs": 100_000}}}
    (folder / "long.yaml").write_text(json.dumps({**TREE, **long}))
    before = set(os.listdir("/dev/shm"))
    words = ("run", "long.yaml", "--executor", "processes:2")
    with started(*words, cwd=folder, starts_anew=True, TMPDIR=str(tmp_path)) as run:
        while "run folder" not in run.stderr.readline():  # its workers were started before
            assert run.poll() is None
        workers = [os.pidfd_open(pid) for pid in _children(run.pid)]
        assert len(workers) == 2
        assert any("memfd:fedmx-data" in name for name in _open_files(run.pid).values())
        run.send_signal(number)
        result = ended(run)
    assert result.code == (130 if number == signal.SIGINT else -number)
    assert ("interrupted" in result.err) == (number == signal.SIGINT)
    assert "Traceback" not in result.err
    for worker in workers:
        assert select.select([worker], [], [], 60)[0], "a worker goes on without its run"
        os.close(worker)
    assert list(tmp_path.iterdir()) == []
    assert {one for one in set(os.listdir("/dev/shm")) - before if "fedmx" in one} == set()


def test_the_command_line_names_the_line_that_failed_in_a_worker(folder: Path) -> None:
    logic = {**ALL, "hooks": [hook("Fails", whom=1)]}
    (folder / "fails.yaml").write_text(json.dumps({**TREE, "logic": logic}))
    result = fedmx("run", "fails.yaml", "--own-modules", "--executor", "processes:2", cwd=folder)
    assert result.code == 2
    last = result.err.splitlines()[-1]
    assert last.startswith("fedmx: client 1, round 2: ValueError: this client will not (")
    assert "worker_parts.py:" in last


def test_the_executor_does_not_change_the_digest() -> None:
    plain = Experiment(**TREE)
    for executor in ("serial", "processes", {"processes": 3}, {"ray": {"workers": 2}}):
        other = Experiment(**TREE, executor=executor)
        assert other.digest() == plain.digest()
        assert Experiment.parse(other.to_yaml()) == other
