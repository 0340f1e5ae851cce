"""Verification: does a pack end in the same bits when it is run again?"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import fedmx
from fedmx.components.text import dotted
from fedmx.components.user_code import NamedCode, named_code
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.history.divergence import (
    OF_THE_NETWORK,
    Divergence,
    RoundRecords,
    other_bits,
    other_records,
)
from fedmx.history.pack import MODULES, Data, PackError, PackFile, roots_of
from fedmx.history.packing import Recorded, check_records, data_facts
from fedmx.history.recorded import RecordedRun, facts_here, other_versions, rerun
from fedmx.history.records import CheckedRecords
from fedmx.journal.journal import JournalError
from fedmx.run import RunFolder
from fedmx.run.records import plain
from fedmx.server.recorder import recorded
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.server.stop import Stop
from fedmx.simulation.simulate import simulate
from layers.compute.bits import NATIVE, is_portable, portable_environment
from layers.compute.data.datasets import DataError
from layers.compute.errors import ComputeError
from layers.logic import BrokenModel, LogicError, TooFewUpdates

_START = "import sys; sys.path[0] = sys.argv.pop(1); from fedmx.history.verify import main; main()"
"""The pack's modules replace the working directory, before all others."""

Outcome = Literal["same bits", "other bits", "not run"]


@dataclass(frozen=True)
class Verification:
    """What was found about a pack that is whole and whose records fit together.

    Attributes:
        pack: the file.
        sha256: of the whole file (hex).
        run: the name of the run folder.
        recorded: the recorded rounds and last hashes.
        outcome: whether running it again gave the same bits; or it was not run.
        reason: why it was not run, or how it differs; empty for the same bits.
        divergence: the first round that differs from its records; None: there is none.
        code: the code that is not fedmx's and that the run needs, one line each.
        versions: what decides bits and differs between the pack and here.
        ended: that the records end before the experiment's last round, and the pack's word for why,
            which is not checked; empty if they do not, or nothing was run.
        shared: for a fork, the rounds of its parent, which are not verified; else empty.
    """

    pack: str
    sha256: str
    run: str
    recorded: Recorded
    outcome: Outcome
    reason: str = ""
    divergence: Divergence | None = None
    code: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    ended: str = ""
    shared: str = ""

    @property
    def same(self) -> bool:
        """Whether it was run again, and gave the same bits."""
        return self.outcome == "same bits"

    def record(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        return {
            "pack": self.pack,
            "sha256": self.sha256,
            "run": self.run,
            **vars(self.recorded),
            **{name: value for name, value in vars(self).items() if name != "recorded"},
            "divergence": None if self.divergence is None else self.divergence.record(),
        }


def verify(
    path: str | os.PathLike[str],
    trust: bool = False,
    *,
    overrides: Sequence[str] = (),
    on_round: Callable[[int, int], None] = lambda round, rounds: None,
) -> Verification:
    """Check a pack, and run its experiment again in a process and a folder of their own.

    Without trust, nothing runs that is not fedmx's own code.

    Args:
        path: the pack.
        trust: whether the code that is not fedmx's may run.
        overrides: ``PATH=VALUE`` texts that do not change the result, such as the executor. Without
            them the run is serial, or has a worker process for each processor if it had workers.
        on_round: is called with the number of each round that ended in the same bits, and with
            that of the last round.

    Raises:
        PackError: it is not a pack, is damaged, or its records do not fit together; or the data
            that it needs are not here.
        ExperimentError: the packed experiment cannot be run here.
    """
    pack = PackFile.read(path)
    with tempfile.TemporaryDirectory(prefix="fedmx-verify-") as temporary:
        try:
            folder = pack.unpack(Path(temporary) / "run")
        except PackError as error:
            raise PackError(f"{path}: {error}") from None
        recorded = check_records(pack, CheckedRecords(folder, str(path)))
        modules = folder.path / MODULES
        modules.mkdir(exist_ok=True)
        experiment = Experiment.parse(
            folder.experiment_yaml,
            f"{path}: experiment.yaml",
            folder=modules,
            modules=None if trust else (),
        )
        code = named_code(experiment.components)
        found = Verification(
            pack=str(path),
            sha256=pack.sha256,
            run=pack.manifest.run,
            recorded=recorded,
            outcome="not run",
            code=tuple(_code_lines(pack, code)),
            versions=tuple(other_versions(folder.facts, facts_here(experiment))),
        )
        if found.code and not trust:
            return replace(
                found, reason="it needs code that is not fedmx's, and nobody has allowed it to run"
            )
        if folder.facts.get("mode") == "server" and "journal.jsonl" not in pack.members:
            return replace(
                found, reason="its clients were on other machines, and it has no journal"
            )
        if begin := folder.forked_after:
            parent = folder.facts["fork"]["run"]
            shared = f"rounds 1 to {begin} are of the run {parent!r}, and are not run again"
            found = replace(found, shared=shared)
        if recorded.rounds < experiment.rounds:
            why = f"after {recorded.rounds} of {experiment.rounds} rounds, as the pack says because"
            found = replace(found, ended=f"{why}: {folder.reason}")
        wanted = [f"executor={_executor(experiment, folder)}", *overrides]
        return _run_again(found, pack, folder, experiment, wanted, trust, on_round)


def _run_again(
    found: Verification,
    pack: PackFile,
    folder: RunFolder,
    experiment: Experiment,
    overrides: Sequence[str],
    trust: bool,
    on_round: Callable[[int, int], None],
) -> Verification:
    options = {
        "data": pack.manifest.data.model_dump(),
        "overrides": list(overrides),
        "trust": trust,
    }
    file = folder.path.with_name("options.json")
    file.write_text(json.dumps(options))
    portable = experiment.compute.bits != NATIVE and not is_portable()
    environment = portable_environment() if portable else dict(os.environ)
    error, ended = "the process that ran it again has ended without a result", False
    for said in _told_by(folder, file, environment):
        match said:
            case {"facts": dict(facts)}:
                found = replace(found, versions=tuple(other_versions(folder.facts, facts)))
            case {"round": int(round)}:
                on_round(round, found.recorded.rounds)
            case {"error": str(text)}:
                error = text.replace(f"{folder.path}{os.sep}", "")
            case {"divergence": None}:
                found, ended = replace(found, outcome="same bits"), True
            case {"divergence": dict(record)}:
                first = Divergence.of_record(record)
                found = replace(found, outcome="other bits", divergence=first, reason=str(first))
                ended = True
    if not ended:
        raise PackError(f"{found.pack}: {error}")
    return found


def _told_by(
    folder: RunFolder, options: Path, environment: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the output of the process that runs the experiment; it has ended afterwards."""
    read, write = os.pipe()
    home = str(Path(fedmx.__file__).parents[1])  # it may have been found in the working directory
    path = [home, *filter(None, [environment.get("PYTHONPATH")])]
    words = [str(folder.path / MODULES), str(folder.path), str(write), str(options)]
    with os.fdopen(read, encoding="utf-8") as told:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, *words],
                env={**environment, "PYTHONPATH": os.pathsep.join(path)},
                pass_fds=(write,),
                stdin=subprocess.DEVNULL,
                stdout=2,  # the code's own output is not the result
            )
        finally:
            os.close(write)
        try:
            for line in told:
                yield json.loads(line)
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def _executor(experiment: Experiment, folder: RunFolder) -> str:
    """Return the executor for this machine: it ignores the pack's number of processes and
    cluster."""
    if "cohort" in folder.facts:  # its bits are its own
        return f"{{cohort: {{clients: {experiment.executor.at_once}}}}}"
    return "serial" if experiment.executor.name == "serial" else "processes"


def _code_lines(pack: PackFile, code: Sequence[NamedCode]) -> Iterator[str]:
    """Yield the code that is not fedmx's own, and its place."""
    inside = roots_of(pack.members)
    for one in code:
        where = f"{dotted(one.where)}: {one.name}"
        if one.root in inside:
            yield f"{where} (a module of the pack)"
        elif one.root in pack.manifest.packages:
            yield f"{where} (of the installed package {pack.manifest.packages[one.root]})"
        else:
            yield f"{where} (not in the pack)"
    for name, text in pack.modules.items():
        yield f"{MODULES}{name}: {len(text.splitlines())} lines"


Tell = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Run the packed experiment that the arguments name; tell what happens as JSON, line by line.

    The arguments are the unpacked run folder, a descriptor to write to, and a file with a JSON
    object: `data` as in the manifest, `overrides`, and whether the user trusts the code (`trust`).
    """
    folder, descriptor, file = sys.argv[1:]
    options = json.loads(Path(file).read_bytes())
    logging.getLogger("fedmx.history").setLevel(logging.ERROR)  # versions are told with the result
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as told:

        def tell(said: Mapping[str, Any]) -> None:
            told.write(json.dumps(said) + "\n")
            told.flush()

        try:
            run = RecordedRun.open(
                Path(folder),
                modules=None if options["trust"] else (),
                overrides=options["overrides"],
            )
            here = facts_here(run.experiment)
            tell({"facts": here})
            data = Data.model_validate(options["data"], strict=False)
            divergence = run_again(run, data, tell)
        except (FedmxError, ComputeError, LogicError) as error:
            tell({"error": " ".join(str(error).split())})
        else:
            tell({"divergence": None if divergence is None else divergence.record()})


def run_again(run: RecordedRun, data: Data, tell: Tell) -> Divergence | None:
    """Run a recorded run again, until it differs from its records or they end.

    Args:
        run: the run.
        data: the facts that identify its data.
        tell: gets the number of each round that ended in the same bits.

    Returns:
        The first round that differs; None: all rounds are the same.

    Raises:
        PackError: the data are not here, or are other ones.
        FedmxError, ComputeError, LogicError: it cannot be run, or cannot go on.
    """
    here = _data_here(run, data)
    if (here.partition_sha256, here.sizes) != (data.partition_sha256, data.sizes):
        return Divergence(1, "run", "the partition divides the same data in another way here")
    records, clients, steps = run.records.rounds, run.records.clients(), 0
    with contextlib.closing(_rounds_of(server := _server(run), run)) as rounds:
        for number, record in records.items():
            if number <= run.folder.forked_after:
                continue
            back = record.get("stepped_back")
            steps += len(back) if isinstance(back, list) else 0
            try:
                for round in rounds:
                    if round.round >= number and len(server.steps_back.steps) >= steps:
                        break
                else:
                    return Divergence(number, "run", "here the run ended before it")
            except JournalError as error:
                differing = () if error.client is None else (error.client,)
                text = f"it does not follow its journal: {error}"
                return Divergence(number, "run", text, differing)
            except (TooFewUpdates, BrokenModel) as error:
                return Divergence(number, "run", f"here it failed: {error}")
            recorded = RoundRecords.of(record, clients.get(number, ()))
            again = RoundRecords.of(
                plain(round.record(), "record"), plain(round.client_records(), "record")
            )
            left_out = OF_THE_NETWORK if run.deployed else ()
            if found := other_bits(number, recorded, again) or other_records(
                number, recorded, again, left_out
            ):
                return found
            tell({"round": number})
    return None


def _server(run: RecordedRun) -> Server:
    """Return the server of a packed run.

    A deployed run follows its journal. A simulated one is simulated again, since a journal could
    say anything; it steps back by itself where the recorded one did.
    """
    if run.deployed:
        return rerun(run, run.folder.forked_after + 1, strict=True)
    server = simulate(run.assembly)
    server.stop = Stop()  # it ended with its last record, perhaps by the real time
    return server


def _rounds_of(server: Server, run: RecordedRun) -> Generator[Round, None, None]:
    """Yield the rounds of the server; a simulation records them in a folder beside the run's."""
    if run.deployed:
        with server:
            yield from server.rounds()
        return
    again = run.folder.path.with_name("again")
    shutil.copytree(run.folder.path, again)
    folder = RunFolder.open(again)
    folder.truncate_after(run.folder.forked_after)
    yield from recorded(server, folder)


def _data_here(run: RecordedRun, data: Data) -> Data:
    """Return how the data on this machine are identified.

    Raises:
        PackError: they are not here, or are other ones; the text says where they are looked for.
    """
    folder = os.environ.get("FEDMX_DATA")
    place = f"FEDMX_DATA is {folder}" if folder else "FEDMX_DATA is not set"
    needed = f"the run needs the data set {data.name} of SHA-256 {data.sha256}"
    try:
        here = data_facts(run.assembly)
    except DataError as error:
        raise PackError(f"{needed}, which is not here: {error} ({place})") from None
    if here.sha256 != data.sha256:
        raise PackError(f"{needed}; {here.name} here has {here.sha256} ({place})")
    return here
