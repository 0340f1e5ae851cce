"""Verification: is a pack whole, do its records fit, and does it end in the same bits again?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import fedmx
from fedmx.components.text import dotted
from fedmx.experiment import Experiment
from fedmx.experiment.own_code import NamedCode, named_code
from fedmx.pack.comparison import Parted
from fedmx.pack.container import MODULES
from fedmx.pack.errors import PackError
from fedmx.pack.own_modules import roots_of
from fedmx.pack.pack_file import PackFile
from fedmx.pack.records import Recorded, check_records
from fedmx.replay.versions import other_versions
from fedmx.run import RunFolder, gather_facts
from layers.compute.bits import NATIVE, is_portable, portable_environment

_START = "import sys; sys.path[0] = sys.argv.pop(1); from fedmx.pack.again import main; main()"
"""The pack's modules stand in the place of the working directory, before all others."""

Outcome = Literal["same bits", "other bits", "not run"]


@dataclass(frozen=True)
class Verification:
    """What was found about a pack that is whole and whose records fit together.

    Attributes:
        pack: the file.
        sha256: of the whole file (hex).
        run: the name of the run folder.
        recorded: what the records say: rounds, and the last hashes.
        outcome: whether running it again gave the same bits; or it was not run.
        reason: why it was not run, or how it parted; empty for the same bits.
        parted: where it parted from the records; None: nowhere.
        code: the code that is not fedmx's and that the run needs, one line each.
        versions: what decides bits and differs between the pack and here.
        ended: that the records end before the experiment's last round, and the pack's word for why,
            which is not checked; empty if they do not, or nothing was run.
    """

    pack: str
    sha256: str
    run: str
    recorded: Recorded
    outcome: Outcome
    reason: str = ""
    parted: Parted | None = None
    code: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    ended: str = ""

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
            "rounds": self.recorded.rounds,
            "chain": self.recorded.chain,
            "model_sha256": self.recorded.model_sha256,
            "outcome": self.outcome,
            "reason": self.reason,
            "parted": None if self.parted is None else self.parted.record(),
            "code": list(self.code),
            "versions": list(self.versions),
            "ended": self.ended,
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
        PackError: it is no pack, is damaged, or its records do not fit together; or the data that
            it needs are not here.
        ExperimentError: what was packed cannot be run here.
    """
    pack = PackFile.read(path)
    with tempfile.TemporaryDirectory(prefix="fedmx-verify-") as temporary:
        try:
            folder = pack.unpack(Path(temporary) / "run")
            recorded = check_records(pack, folder)
        except PackError as error:
            raise PackError(f"{path}: {error}") from None
        source, modules = folder.path / "experiment.yaml", folder.path / MODULES
        modules.mkdir(exist_ok=True)
        code = [one for one in named_code(source, (), modules) if one.owner is not None]
        found = Verification(
            pack=str(path),
            sha256=pack.sha256,
            run=pack.manifest.run,
            recorded=recorded,
            outcome="not run",
            code=tuple(_code_lines(pack, code)),
            versions=tuple(_versions(folder, gather_facts(seed=0, mode="simulation", digest=""))),
        )
        if found.code and not trust:
            return replace(
                found, reason="it needs code that is not fedmx's, and nobody has allowed it to run"
            )
        if folder.facts.get("mode") == "server" and "course.jsonl" not in pack.members:
            return replace(
                found, reason="its clients were on other machines, and their course is not recorded"
            )
        experiment = Experiment.parse(
            folder.experiment_yaml,
            f"{path}: experiment.yaml",
            folder=modules,
            modules=None if trust else (),
        )
        if recorded.rounds < experiment.rounds:
            why = f"after {recorded.rounds} of {experiment.rounds} rounds, as the pack says because"
            found = replace(found, ended=f"{why}: {folder.reason}")
        wanted = [f"executor={_executor(experiment)}", *overrides]
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
                found = replace(found, versions=tuple(_versions(folder, facts)))
            case {"round": int(round)}:
                on_round(round, found.recorded.rounds)
            case {"error": str(text)}:
                error = text.replace(f"{folder.path}{os.sep}", "")
            case {"parted": None}:
                found, ended = replace(found, outcome="same bits"), True
            case {"parted": dict(parted)}:
                where = Parted.of_record(parted)
                found = replace(found, outcome="other bits", parted=where, reason=where.text)
                ended = True
    if not ended:
        raise PackError(f"{found.pack}: {error}")
    return found


def _told_by(
    folder: RunFolder, options: Path, environment: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield what the process that runs the experiment tells; it has ended afterwards."""
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
                stdout=2,  # what the code prints is not the result
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


def _executor(experiment: Experiment) -> str:
    """Return who trains, of this machine: no number of processes and no cluster of a stranger."""
    return "serial" if experiment.executor.name == "serial" else "processes"


def _versions(folder: RunFolder, here: Mapping[str, Any]) -> list[str]:
    """Return what decides bits and differs between a pack and here."""
    return other_versions(folder.facts, here)


def _code_lines(pack: PackFile, code: Sequence[NamedCode]) -> Iterator[str]:
    """Yield what is not fedmx's own code, and where it is."""
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
