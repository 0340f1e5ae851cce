"""Runs whose process is killed at each step of a round and of its records, once at each.

A process dies by SIGKILL at the first place at which no earlier one has died; then the run goes on.
Places are: before each call that changes a file of the run, in the middle of each write, and within
the fold. `python -m tests.fedmx.killed_anywhere` prints them.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedmx import RunFolder
from tests.fedmx.deployment.test_deployment import simulated
from tests.fedmx.processes import Deployment, Process
from tests.fedmx.timeless import timeless
from tests.network.conftest import Certificates

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.chmod"}  # are audited
NO_CALLS = ("fold", "hooks", "the round", "open report.html")  # the page is a stand-in
NEED_NO_ROOM = ("os.remove", "os.truncate", "os.chmod", "fsync killed", "pwrite lock")
ADVICE = ("make it writable", "disk space")
CLIENTS = 3
EXPERIMENT = """
name: killed
seed: 5
rounds: {rounds}
clients: 3
compute:
  model: 2nn
  data: digits
  normalise: {{scale: 16}}
  train: {{steps: 2, batch_size: 10, learning_rate: 0.05}}
logic:
  preset: scaffold
  selector: {{name: uniform, fraction: 1.0}}
network: {{rejoin_s: 3600, patience_s: 3600}}
run: {{checkpoint: {{keep: {{last: 2}}}}}}
"""


class Places:
    """The places that this process reaches; it dies at the first one that is not known yet.

    Args:
        known: the file of the places at which earlier processes have died; empty: die at none.
        wanted: the places that count; none: all.
        folder: the part of a path by which the files that count are known, such as ``/runs/``.
        last_round: die when this round is recorded, whatever is known; 0: each round.
        error: fail with this error number, from then on, in place of dying; 0: die.
    """

    def __init__(
        self, known: str, wanted: set[str], folder: str, last_round: int, error: int = 0
    ) -> None:
        self._file = os.open(known or os.devnull, os.O_WRONLY | os.O_APPEND)
        self._known = set(Path(known).read_text().splitlines()) if known else None
        self._wanted = wanted
        self._folder = folder
        self._last_round = last_round
        self._error = error
        self._fails = False
        self._met: Counter[str] = Counter()
        self._main = threading.main_thread()

    def reach(self, name: str, first: Callable[[], object] = lambda: None) -> None:
        """Note a place, and die or fail there after `first` if it is new."""
        if threading.current_thread() is not self._main:
            return
        if self._error and (name.startswith(NO_CALLS) or self._has_room(name)):
            return
        if self._fails:
            raise OSError(self._error, os.strerror(self._error))
        self._met[name] += 1
        place = f"{name} #{self._met[name]}"
        if self._known is None or place in self._known:
            return
        if not self._wanted or place in self._wanted:
            first()
            self._end(place)

    def _has_room(self, name: str) -> bool:
        return self._error == errno.ENOSPC and name.startswith(NEED_NO_ROOM)

    def recorded(self, round: int) -> None:
        """Note that a round is recorded."""
        self.reach("the round is recorded")
        if self._last_round in (0, round):
            os.kill(os.getpid(), signal.SIGKILL)

    def _end(self, place: str) -> None:
        os.write(self._file, f"{place}\n".encode())
        if not self._error:
            os.kill(os.getpid(), signal.SIGKILL)
        self._fails = True
        raise OSError(self._error, os.strerror(self._error))

    def file(self, what: object) -> str | None:
        """Return the name of a file that counts, without its numbers; None: it does not count."""
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fsdecode(what)
        if self._folder not in path:
            return None
        folder, _, inner = path.rpartition(self._folder)[2].partition("/")
        return re.sub(r"[0-9a-f]{12,}|[0-9]+", "N", inner or folder)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a call before it is made."""
        if event not in CALLS or threading.current_thread() is not self._main:
            return
        if event == "open" and not (arguments[2] or 0) & WRITES:
            return
        if (file := self.file(arguments[0])) is not None:
            self.reach(f"{event} {file}")

    def before(self, owner: Any, name: str, text: str = "") -> None:
        """Note each call of a function before it."""
        self._replace(owner, name, lambda *_: text or name)

    def before_file(self, owner: Any, name: str) -> None:
        """Note each call of a function of a file before it."""

        def named(file: Any, *_: object) -> str | None:
            found = self.file(file)
            return None if found is None else f"{name} {found}"

        self._replace(owner, name, named)

    def in_the_middle(self, owner: Any, name: str, half: Callable[..., object], of: int) -> None:
        """Note each call of a function that writes a file, with half of it written.

        Args:
            owner: of the function.
            name: of the function.
            half: writes half of what the function would write, with the same arguments.
            of: which argument is the file.
        """
        called = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if (file := self.file(arguments[of])) is not None:
                self.reach(f"half of {name} {file}", lambda: half(*arguments))
            return called(*arguments, **named)

        setattr(owner, name, call)

    def _replace(self, owner: Any, name: str, place: Callable[..., str | None]) -> None:
        called = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if (text := place(*arguments)) is not None:
                self.reach(text)
            return called(*arguments, **named)

        setattr(owner, name, call)


def main_of_doomed() -> None:
    """Run `fedmx` in a process that dies at a new place."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    from fedmx.cli.start import main
    from fedmx.client.participant import ClientMemory
    from fedmx.deployment import client_sessions
    from fedmx.run import checkpoint
    from fedmx.server.recorder import FolderRecorder
    from layers.logic.aggregators import mean
    from layers.logic.round import lanes
    from layers.logic.round.pipeline import ServerPipeline

    environment = os.environ
    places = Places(
        environment["KNOWN"],
        set(filter(None, environment["WANTED"].split("\n"))),
        environment["COUNTS"],
        int(environment["LAST_ROUND"]),
        int(environment["ERROR"]),
    )
    write, save = os.pwrite, checkpoint.save_file

    def half_saved(arrays: Any, path: Path, *_: object) -> None:
        save(arrays, path)
        os.truncate(path, path.stat().st_size // 2)

    places.in_the_middle(
        os, "pwrite", lambda fd, data, at: write(fd, data[: len(data) // 2], at), 0
    )
    places.in_the_middle(checkpoint, "save_file", half_saved, 1)
    places.in_the_middle(
        Path, "write_bytes", lambda path, data: path.open("wb").write(data[: len(data) // 2]), 0
    )
    places.before_file(os, "pwrite")
    places.before_file(os, "fsync")

    write_event = RecordWriter.write

    def event_written(writer: RecordWriter, content: bytes) -> None:
        def half() -> None:
            writer._writer.write(content[: len(content) // 2])
            writer._writer.flush()

        places.reach("write of an event")
        places.reach("half of an event", half)
        write_event(writer, content)

    places.before(mean.Mean, "init", "fold: init")
    places.before(lanes, "added", "fold: add")
    places.before(mean.BufferMean, "add", "fold: in the middle of add")
    places.before(lanes, "finished", "fold: finish")
    places.before(mean, "stepped", "fold: in the middle of finish")
    places.before(ServerPipeline, "on_accepted", "hooks: on_accepted")
    places.before(ServerPipeline, "conclude", "hooks: conclude")

    record, keep = FolderRecorder.record, ClientMemory.keep

    def recorded(recorder: FolderRecorder, round: Any, *arguments: Any) -> None:
        record(recorder, round, *arguments)
        places.recorded(round.round)

    def kept(memory: ClientMemory, *arguments: Any) -> None:
        keep(memory, *arguments)
        places.recorded(0)

    replaced: tuple[tuple[type, str, Callable[..., None]], ...] = (
        (RecordWriter, "write", event_written),
        (FolderRecorder, "record", recorded),
        (ClientMemory, "keep", kept),
    )
    for owner, name, call in replaced:
        setattr(owner, name, call)
    sys.addaudithook(places.audit)
    if environment["ALONE"]:
        client_sessions.FINISH_WAIT_S = 0.0
    main()


class Doomed(Process):
    """A `fedmx` command that dies at a place, or when a round is recorded.

    Args:
        folder: where it works.
        words: the command.
        known: the places at which it does not die; a new one is added. None: it dies at none.
        wanted: the places at which it may die; none: all.
        counts: the part of a path by which the files that count are known.
        last_round: the round after which it dies; 0: each one, -1: none.
        error: the error number with which its calls fail from then on, in place of dying.
        alone: whether no client is left that a server could tell that the run is over.
    """

    main = "tests.fedmx.killed_anywhere:main_of_doomed"

    def __init__(
        self,
        folder: Path,
        *words: str,
        known: Path | None = None,
        wanted: Collection[str] = (),
        counts: str = "/runs/",
        last_round: int = 0,
        error: int = 0,
        alone: bool = False,
    ) -> None:
        super().__init__(
            folder,
            "doomed",
            *words,
            KNOWN=str(known or ""),
            WANTED="\n".join(wanted),
            COUNTS=counts,
            LAST_ROUND=str(last_round),
            ERROR=str(error),
            ALONE="alone" if alone else "",
        )


class Killed:
    """A run that is killed at each place, and goes on each time.

    Args:
        folder: a folder that does not exist yet.
        wanted: the places at which its processes may die; none: all.

    Attributes:
        folder: as given.
        file: the experiment.
        run: the run.
        undisturbed: the same run without kills.
        places: the places at which a process died, by what it did.
    """

    def __init__(
        self,
        folder: Path,
        rounds: int,
        wanted: Mapping[str, Collection[str]] = MappingProxyType({}),
        error: int = 0,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.rounds = rounds
        self.file = folder / "experiment.yaml"
        self.file.write_text(EXPERIMENT.format(rounds=rounds))
        self.places: dict[str, list[str]] = {}
        self._wanted = wanted
        self._error = error

    @property
    def run(self) -> RunFolder:
        (facts,) = self.folder.glob("runs/*/run.json")
        return RunFolder.open(facts.parent)

    def simulate(self) -> None:
        """Kill a simulation at each place of a round and of its end."""
        first = Doomed(self.folder, "run", str(self.file), last_round=1)
        assert first.code() == -signal.SIGKILL, first.output
        self._kill_at_each()

    def deploy(self, certificates: Certificates) -> None:
        """Kill a client at each place of an update, then its server as a simulation.

        The other clients live until they are told that the run is over.
        """
        with Deployment(self.folder, self.file, certificates) as deployment:
            server = deployment.serve()
            clients = [deployment.client(number, CLIENTS) for number in range(1, CLIENTS)]
            words = deployment.client_words(0, CLIENTS)
            self._until_nothing_new(
                "an update", lambda **how: Doomed(self.folder, *words, counts="/memory/", **how)
            )
            server.kill()  # its round has waited for that client
            clients.append(deployment.client(0, CLIENTS))
            self._kill_at_each(clients)
            for client in clients:
                assert client.code() == 0, client.output

    def _kill_at_each(self, clients: Sequence[Process] = ()) -> None:
        words = ("resume", str(self.run.path))
        self._until_nothing_new("a round", lambda **how: Doomed(self.folder, *words, **how))
        assert self.run.rounds()[-1]["round"] < self.rounds, "the run needs more rounds"
        last = Doomed(self.folder, *words, last_round=self.rounds)
        assert last.code() == -signal.SIGKILL, last.output

        def end(**how: Any) -> Process:
            if self.run.status == "done":  # it was killed after that, and what follows is left
                (self.run.path / "status.json").unlink()
            alone = all("the run is over" in client.output for client in clients)
            return Doomed(self.folder, *words, last_round=-1, alone=alone, **how)

        self._until_nothing_new("the end", end)

    def _until_nothing_new(self, part: str, start: Callable[..., Process]) -> None:
        """Start a process again and again, until it has not died at a new place."""
        known = self.folder / f"{part}.txt"
        known.touch()
        found: list[str] | None = None
        while found != (found := known.read_text().splitlines()):
            process = start(known=known, wanted=self._wanted.get(part, ()), error=self._error)
            code = process.code()
            place = known.read_text().splitlines()[-1:]
            if code not in (0, -signal.SIGKILL):
                assert code == 2, (place, process.output)
                assert self._error, (place, process.output)
                assert "Traceback" not in process.output, (place, process.output)
                last = process.output.splitlines()[-1]
                assert str(self.run.path) in last.partition(": cannot ")[0], (place, last)
                assert os.strerror(self._error) in last, (place, last)
                assert any(advice in last for advice in ADVICE), (place, last)
        self.places[part] = found

    def check(self) -> None:
        """Check that the run has the model and the records of an undisturbed one."""
        run, undisturbed = self.run, simulated(self.folder / "undisturbed", self.file)
        assert run.status == "done"
        assert run.model_path.read_bytes() == undisturbed.model_path.read_bytes()
        others = ("control_bytes", "rejected_connections", "chain")
        assert timeless(run.rounds(), *others) == timeless(undisturbed.rounds(), *others)

    def show(self, what: str) -> None:
        """Print the places."""
        for part, places in self.places.items():
            print(f"{what}: {part}: {len(places)} places", flush=True)
            for place in places:
                print(f"  {place}")


def main() -> None:
    """Kill runs at each place, and print the places."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for error in (0, errno.EROFS, errno.ENOSPC):
            what = os.strerror(error) if error else "killed"
            run = Killed(folder / f"simulation-{error}", 60, error=error)
            run.simulate()
            run.check()
            run.show(f"simulation, {what}")
        run = Killed(folder / "deployment", 100)
        run.deploy(Certificates(folder / "certificates"))
        run.check()
        run.show("deployment, killed")


if __name__ == "__main__":
    main()
