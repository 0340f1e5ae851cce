"""Pages of what commands print, on a terminal of several widths: tables, sentences and errors.

The runs, sweeps and servers are made up, so no text depends on the machine or on the time.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from fedmx import Experiment, RunFolder
from fedmx.cli.main import main
from fedmx.cli.output import one_line
from fedmx.cli.runs import status_lines
from fedmx.cli.sweep import tell_failures
from fedmx.cli.time_travel import _result, _show_round, part_lines, verification_lines
from fedmx.errors import FedmxError
from fedmx.history import Verification
from fedmx.history.packing import Recorded
from fedmx.history.replay import Part, ReplayedRound, Step
from fedmx.history.values import VectorNumbers
from fedmx.sweeps.cells import axis_of
from fedmx.sweeps.folder import SweepFolder
from fedmx.sweeps.result import SweepResult
from layers.logic import ClientReport
from tests.fedmx.golden.pages import FACTS, not_waiting, waiting

MIB = 1 << 20
COMMAND = functools.cache(typer.main.get_command)  # to make it takes longer than most commands
TRIAL = """
name: {name}
seed: {seed}
rounds: {rounds}
clients: 9
compute:
  model: 2nn
  data: digits
  partition: {{name: shards, per_client: 2}}
  normalise: {{scale: 16}}
  train: {{learning_rate: {rate}, epochs: 2}}
logic: {{preset: {preset}}}
"""


def said(*words: str | Path, columns: int = 80) -> list[str]:
    """Run a command in this process, and return what a terminal without colours shows."""
    shown = [f"COLUMNS={columns} fedmx {' '.join(map(str, words))}"]
    with showing(shown), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(typer.main, "get_command", COMMAND)
        code = main(list(map(str, words)))
    return [*shown, f"exit code {code}", ""]


@contextlib.contextmanager
def showing(lines: list[str]) -> Iterator[None]:
    """Add to `lines` what the body writes; a line of stderr begins with a mark."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
    lines += out.getvalue().splitlines()
    lines += [f"stderr: {line}" for line in err.getvalue().splitlines()]


def ago(hours: int) -> str:
    """Return a time so many hours ago, and a half, so that a slow test reads the same age."""
    now = datetime.datetime.now().astimezone()
    return (now - datetime.timedelta(hours=hours + 0.5)).isoformat(timespec="seconds")


def trial(**of: Any) -> str:
    """Return an experiment file."""
    known = {"name": "trial", "seed": 1, "rounds": 8, "rate": 0.1, "preset": "fedavg"}
    return TRIAL.format(**{**known, **of})


def a_run(parent: Path, folder: str, started: str | None, **of: Any) -> RunFolder:
    """Return a run without records; its folder's name has no time, and is not its experiment's."""
    facts = {**FACTS, "seed": of.get("seed", 1), "started": started}
    made = RunFolder.create(parent, folder, trial(**of), facts)
    return RunFolder.open(made.path.rename(parent / folder))


def a_sweep(
    parent: Path, name: str, seeds: int, rates: Sequence[float] = (), target: float | None = None
) -> SweepFolder:
    """Return a sweep of two algorithms and some rates; none of its runs has begun."""
    axes = [axis_of("logic.preset", ["fedavg", {"name": "fedprox", "mu": 0.1}])]
    axes += [axis_of("compute.train.learning_rate", rates)] if rates else []
    made = SweepFolder.create(
        parent,
        name,
        trial(name=name),
        axes=axes,
        seeds=range(1, seeds + 1),
        overrides=[],
        modules=parent,
        target=target,
    )
    path = made.path.rename(parent / name)
    sweep = SweepFolder(path, replace(made.manifest, started=ago(1)))
    sweep.save()
    return sweep


def run_in(sweep: SweepFolder, number: int, rounds: int = 4, **more: Any) -> RunFolder:
    """Add the run of a cell and a seed to a sweep, with a number of rounds."""
    run = sweep.runs[number]
    text = Experiment.parse(sweep.experiment_path.read_text("utf-8"), "it", run.overrides).to_yaml()
    facts = {**FACTS, "seed": run.seed, "started": ago(20 - number)}
    made = RunFolder.create(sweep.path, run.name, text, facts)
    made = RunFolder.open(made.path.rename(sweep.path / f"{run.name}-2"))
    drawn = random.Random(run.seed + 100 * run.cell.number)
    for round in range(1, rounds + 1):
        made.append_round(
            {
                "round": round,
                "accuracy": 0.9 - (0.5 + 0.1 * drawn.random()) / round - 0.01 * run.cell.number,
                "loss": 1 / round,
                "participants": [1, 2],
                "up_bytes": MIB // 4 + run.seed,
                "down_bytes": MIB // 2,
                "seconds": 1.25,
                **more,
            }
        )
    return made


def fail_in(sweep: SweepFolder, number: int) -> None:
    """Let a run of a sweep end with an error, before it has a folder."""
    log = {"event": "error", "text": "the disk\nis full", "fields": {"code": 2}}
    path = sweep.log_path(sweep.runs[number])
    path.write_text(json.dumps(log) + "\n", encoding="utf-8")


def lists_of_runs(parent: Path) -> str:
    """Runs of one experiment, of another and of none, and sweeps in each state."""
    folder = parent / "runs"
    first = waiting(a_run(folder, "first", ago(23)), 8, random.Random(1))
    first.finish("done", "all 8 rounds were run")
    other = a_run(folder, "second", ago(11), seed=2, rate=0.5, preset="fedprox")
    waiting(other, 3, random.Random(2)).finish("failed", "the disk is full")
    waiting(a_run(folder, "third", ago(10), seed=3), 2, random.Random(3))
    a_run(folder, "not-begun", ago(9), name="another")
    a_run(folder, "without-a-time", None, name="another")
    not_waiting(a_run(folder, "versions", ago(8), name="another", preset="fedbuff"), 3)
    (a_run(folder, "damaged", ago(7)).path / "experiment.yaml").unlink()
    active = waiting(a_run(folder, "active", ago(6), name="another"), 1, random.Random(4))

    begun, failed, whole = (a_sweep(folder, name, 2) for name in ("begun", "failed", "whole"))
    under_way = a_sweep(folder, "under-way", 3)
    for sweep, number in ((begun, 1), (failed, 1), (whole, 4), (under_way, 2)):
        for one in range(number):
            run_in(sweep, one).finish("done")
    fail_in(failed, 1)
    fail_in(under_way, 5)
    (a_sweep(folder, "changed", 1).path / "sweep.json").write_text("{}")
    grid = a_sweep(parent, "grid", 2, [0.1, 0.5])
    for number in range(8):
        run_in(grid, number).finish("done", "all 8 rounds were run")

    (parent / "empty").mkdir()
    (parent / "file").touch()
    lines = []
    with active.lock(), under_way.lock():
        for columns in (60, 100):
            lines += said("runs", folder, columns=columns)
        lines += said("runs", folder, "--json")
    for columns in (80, 100):
        lines += said("runs", grid.path, columns=columns)
    for name in ("empty", "file", "missing", "runs/first"):
        lines += said("runs", parent / name)
    lines += said("runs", parent / "empty", "--json")
    text = re.sub(r'"(age_s|started)": (\d+|"[^"]+")', r'"\1": ...', "\n".join(lines))
    return text.replace("}, {", "},\n{")


NOW = datetime.datetime(2026, 1, 31, 9, 30, tzinfo=datetime.timezone.utc).timestamp()
STATUS: Mapping[str, Any] = {
    "run": "runs/trial",
    "state": "running",
    "reason": "",
    "pid": 4321,
    "time": "2026-01-31T09:29:59+00:00",
    "round": None,
    "rounds_done": 0,
    "rounds": 8,
    "accuracy": None,
    "loss": None,
    "clients": None,
    "ready": [],
    "away": {},
    "waiting": None,
    "awaits": "",
    "updates": {"accepted": 0, "rejected": 0, "declined": 0, "lost": 0},
    "in_flight": None,
    "staleness": None,
    "updates_per_s": None,
    "received_bytes": 0,
    "sent_bytes": 0,
    "refused_connections": None,
    "reconnections": None,
    "certificates": [],
    "paused": False,
    "excluded": [],
    "suspended": {},
    "epsilon": None,
    "memory_bytes": None,
}
MEASURED = {"accuracy": 0.71234, "loss": 0.98765, "rounds_done": 3, "epsilon": 1.23456}
STATUSES: Mapping[str, Mapping[str, Any]] = {
    "a simulation that begins": {"memory_bytes": 100 * MIB},
    "a server before its first client": {
        "clients": 4,
        "waiting": {"for": "clients", "clients": [0, 1, 2, 3], "since": "2026-01-31T09:28:00Z"},
        "refused_connections": 0,
        "reconnections": 0,
        "certificates": [{"warning": None}],
    },
    "a round under way": {
        **MEASURED,
        "round": 4,
        "clients": 9,
        "ready": [0, 1, 2, 5, 8],
        "away": {"3": "2026-01-31T09:29:30Z", "7": "2026-01-31T09:30:05Z"},
        "suspended": {"4": 90.0, "6": 0.5},
        "excluded": [2, 8, 1],
        "awaits": "4 updates",
        "waiting": {"for": "updates", "clients": [5, 8], "since": "2026-01-31T08:00:00+00:00"},
        "updates": {"accepted": 12, "rejected": 1, "declined": 2, "lost": 3},
        "received_bytes": 3 * MIB,
        "sent_bytes": 5 * MIB,
        "refused_connections": 6,
        "reconnections": 7,
        "certificates": [
            {"warning": "ca.pem expires in 9 days"},
            {"warning": None},
            {"warning": "crl.pem expires\nin 8 days"},
        ],
        "memory_bytes": 200 * MIB,
    },
    "paused between rounds": {**MEASURED, "paused": True, "ready": [4], "round": None},
    "paused, and then interrupted": {
        **MEASURED,
        "state": "interrupted",
        "reason": "its process ended before the run did",
        "paused": True,
        "pid": None,
        "round": 4,
        "clients": 2,
        "ready": [0, 1],
    },
    "an interrupted simulation": {"state": "interrupted", "pid": None, "time": None},
    "done": {
        **MEASURED,
        "state": "done",
        "reason": "all 8 rounds were run",
        "pid": None,
        "rounds_done": 8,
        "round": 8,
    },
    "versions": {
        "round": 1,
        "in_flight": 3,
        "waiting": {"for": "answers", "clients": [1], "since": "2026-01-31T09:29:00Z"},
    },
    "later versions": {
        **MEASURED,
        "round": 4,
        "in_flight": 0,
        "staleness": 1.25,
        "updates_per_s": 12.3456,
    },
}


def statuses(parent: Path) -> str:
    """The lines of `fedmx status`, with each of those that are not always there."""
    lines = []
    for title, more in STATUSES.items():
        lines += ["", f"{title}:"]
        lines += [f"{label}: {text}" for label, text in status_lines({**STATUS, **more}, NOW)]
    return "\n".join(lines[1:])


def sweeps(parent: Path) -> str:
    """The tables of finished sweeps, and what is said about others."""
    whole = a_sweep(parent, "grid", 6, [0.1, 0.5], target=0.61)
    for number in range(24):
        # One cell misses the target with some seeds.
        rounds = 2 if whole.runs[number].cell.number == 2 else 3 if number % 5 == 0 else 4
        run_in(whole, number, rounds).finish("done", f"all {rounds} rounds were run")
    few = a_sweep(parent, "few", 2)
    for number in range(4):
        run_in(few, number, epsilon=0.25).finish("done", "all 4 rounds were run")
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        # To draw a page takes longer than to print its tables.
        patch.setattr("fedmx.sweeps.result.write_page", lambda compared, path: path.touch())
        for columns in (60, 120):
            lines += said("sweep", whole.path, columns=columns)
        lines += said("sweep", few.path)
        lines += said("sweep", few.path, "--json")
    lines += said("report", few.path, "--output", parent / "page.html")
    lines += said("report", few.path, few.path)
    lines += said("sweep", few.path, "--vary", "rounds=1,2")
    lines += said("sweep", few.path, "--set", "rounds=1")
    lines += said("sweep", few.path, "--executor", "nobody")
    lines += said("sweep", parent / "missing.yaml")
    for name, done, failed in (("open", 3, 0), ("broken", 3, 1), ("most", 0, 2)):
        lines.append(f"the end of a sweep: {done} of 4 runs are done, {failed} failed:")
        sweep = a_sweep(parent, name, 2)
        for number in range(done):
            run_in(sweep, number).finish("done")
        for number in range(4 - failed, 4):
            fail_in(sweep, number)
        with showing(lines), pytest.raises(FedmxError) as caught:
            tell_failures(SweepResult.of(sweep))
        lines += [str(caught.value), ""]
    return re.sub(r"0\.\d{5,}", lambda found: f"{float(found[0]):.4f}", "\n".join(lines))


def _round(number: int, differing: Sequence[int] = (), **more: Any) -> ReplayedRound:
    same = {"model_sha256": "a", "recorded_model_sha256": "a", "chain": "b", "recorded_chain": "b"}
    told = {"record_holds": True, "updates": number, "differing": tuple(differing)}
    return ReplayedRound(**{"round": number, **same, **told, **more})


ROUNDS = (
    _round(1),
    _round(2),
    _round(3, (4, 7)),
    _round(4, (4,), model_sha256="c", chain="d"),
    _round(5, model_sha256="c", chain="d"),
    _round(6, record_holds=False),
    _round(7, (1,), model_sha256="c", chain="d", record_holds=False),
    _round(8, chain="d"),
)


def _steps(later: int = 1) -> tuple[Step, ...]:
    numbers = VectorNumbers(1000, 12.34567, 0.0, 1.5, 0)
    sparse = VectorNumbers(1000, 1234567.8, 0.98765, 0.000123456, 12)
    notes = {"loss": 0.123456789, "steps": 20, "samples": 100}
    return (
        Step("server", "start", later, numbers, 4000),
        Step("server", "task", later, numbers, 1234567),
        Step("client", "training", later, numbers, 4000, notes),
        Step("client", "Stc.send", later, sparse, 160),
        Step("client", "message", later, sparse, 200, blake3="0123456789abcdef" * 4),
        Step("server", "decoded", later, VectorNumbers(0, 0.0, 0.0, 0.0, 0), 4000),
    )


HASH, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4
PARTS: Mapping[str, Sequence[Part]] = {
    "the same": [
        Part(
            *(3, 7, _steps(), ClientReport(7, "accepted")),
            {"status": "accepted", "update_blake3": [HASH]},
        )
    ],
    "two passes, one in the record": [
        Part(
            *(3, 7, (*_steps(), *_steps(2)), ClientReport(7, "accepted")),
            {"status": "accepted", "update_blake3": [HASH, OTHER]},
        )
    ],
    "rejected here": [
        Part(
            *(3, 7, _steps()[:3], ClientReport(7, "rejected", "it is\nnot finite")),
            {"status": "accepted", "update_blake3": [OTHER]},
        )
    ],
    "lost in the run": [
        Part(
            *(3, 7, _steps(), ClientReport(7, "accepted")),
            {"status": "lost", "reason": "no answer"},
        )
    ],
    "not recorded": [Part(3, 7, (), ClientReport(7, "declined"), {})],
    "tasks of several versions": [
        Part(
            *(3, 7, _steps()[2:], ClientReport(7, "accepted", version=1, staleness=2)),
            {"status": "accepted", "update_blake3": [HASH]},
        ),
        Part(
            *(3, 7, _steps(), ClientReport(7, "accepted", version=2, staleness=0)),
            {"status": "accepted", "update_blake3": [HASH]},
        ),
        Part(3, 7, _steps()[:2], ClientReport(7, "in-flight", version=3), {}),
    ],
}
VERIFIED = Verification("a pack.fedmx", HASH, "trial", Recorded(8, HASH, OTHER), "same bits")
VERIFICATIONS = (
    VERIFIED,
    replace(
        VERIFIED,
        recorded=Recorded(1, HASH, OTHER),
        versions=("numpy 1 and 2", "MXNet 1 and 2"),
        code=("own.py: Hook",),
        shared="rounds 1 to 3 are of its parent",
        ended="after round 1 of 8",
    ),
    replace(VERIFIED, outcome="other bits", reason="round 3:\nthe model", code=("own.py: Hook",)),
    replace(VERIFIED, outcome="not run", reason="there is no MXNet"),
    replace(
        VERIFIED,
        outcome="not run",
        reason="it names code",
        code=("own.py: Hook", "more.py: Model"),
    ),
)


def printed_replays(parent: Path) -> str:
    """What `fedmx replay` and `fedmx verify` say, whatever they find."""
    lines: list[str] = []
    with showing(lines):
        for one in ROUNDS:
            _show_round(one)
    lines += [_result(ROUNDS[:1]), _result(ROUNDS[:2]), _result(ROUNDS), _result(ROUNDS[3:4])]
    for title, parts in PARTS.items():
        lines += ["", f"{title}:", *map(one_line, part_lines(parts))]
    for found in VERIFICATIONS:
        lines += ["", *verification_lines(found)]
    return "\n".join(lines)


OWN = '''
"""A hook of the user."""
from dataclasses import dataclass
from layers.logic import Hook

@dataclass(frozen=True)
class Mine(Hook):
    """It does nothing."""
'''


def explanations(parent: Path) -> str:
    """What `fedmx list` and `fedmx explain` say about some names, keys and files."""
    (parent / "own_hook.py").write_text(OWN)
    (parent / "trial.yaml").write_text(trial(preset="{name: fedprox, mu: 0.1}"))
    own = [
        *("--set", "logic.hooks=['own_hook:Mine', 'elsewhere:Other', stc]"),
        *("--set", "logic.aggregator={name: clipped-mean, share: 0.1}"),
    ]
    lines = []
    for columns in (50, 100):
        lines += said("list", "partitions", columns=columns)
    lines += said("list", "uploads")
    lines += said("list", "models", "--engine", "torch")
    for name in (
        *("shards", "fedavgm", "stc", "uniform"),
        *("compute.train.learning_rate", "run.checkpoint", "logic.selector", "projected-stk"),
    ):
        lines += said("explain", name)
    lines += said("explain", parent / "trial.yaml")
    lines += said("explain", parent / "trial.yaml", *own[:2])
    return "\n".join(lines)


def certificates(parent: Path) -> str:
    """What `fedmx certs` writes and shows, without hashes, serial numbers and days."""
    pki, machine, other = parent / "pki", parent / "machine", parent / "other"
    lines = []
    for words in (
        ("all", pki, "--clients", "3", "--name", "fl.example.org", "--name", "10.0.0.5"),
        ("all", pki),
        ("ca", other),
        ("ca", other),
        ("server", other),
        ("client", other, "0"),
        ("client", other, "9", "7", "9"),
        ("crl", other),
        ("request", machine, "12"),
        ("request", machine, "server"),
        ("request", machine, "server", "--name", "fl.example.org"),
        ("request", machine, "12", "--name", "fl.example.org"),
        ("request", machine, "012"),
        ("request", machine, "two words"),
        ("request", machine, "ca"),
        ("request", machine, "bonn"),
        ("sign", pki, machine / "client-12.csr"),
        ("sign", pki, machine / "client-12.csr"),
        ("sign", pki, machine / "client-12.csr", machine / "server.csr", "--again"),
        ("sign", pki, machine / "client-12.key"),
        ("sign", pki, machine / "bonn.csr"),
        ("kit", pki, "bonn", "--address", "fl.example.org:443", "--request"),
        ("kit", pki, "ulm", "--address", "fl.example.org:443"),
        ("kit", pki, "ulm", "--address", "fl.example.org:443"),
        ("show", pki / "ca.pem"),
        ("show", pki / "server.pem"),
        ("show", pki / "client-2.pem"),
        ("show", pki / "crl.pem"),
        ("revoke", pki, "2", pki / "client-0.pem"),
        ("show", pki / "crl.pem"),
        ("revoke", pki, "8"),
        ("show", pki / "server.key"),
        ("show", parent / "missing.pem"),
    ):
        lines += said("certs", *words)
    (parent / "trial.yaml").write_text(trial())
    server = ["server", parent / "trial.yaml", "--set", "compute.data={name: arrays, path: no.npz}"]
    server += ["--set", "compute.engine=numpy"]
    server += ["--ca", pki / "ca.pem", "--key", machine / "server.key", "--cert"]
    for crl in (pki / "crl.pem", other / "crl.pem", parent / "missing.pem"):
        lines += said(*server, pki / "server.pem", "--crl", crl)
    lines += said(*server, pki / "client-2.pem")
    text = re.sub(
        r"\b[0-9A-F]{2}(:[0-9A-F]{2}){3,}\b|\b[0-9a-fA-F]{30,}\b", "HEX", "\n".join(lines)
    )
    text = re.sub(r"\b20\d\d-\d\d-\d\d( \d\d:\d\d)?\b", "DATE", text)
    return re.sub(r"[\d,]+ days left", "DAYS days left", text)


def data(parent: Path) -> str:
    """What `fedmx data` shows of data that come with a package, and where it finds others."""
    lines = []
    for words in (
        ("show", "digits", "--clients", "3"),
        ("show", "digits", "--clients", "12", "--partition", "one-class"),
        ("show", "digits", "--clients", "25", "--set", "compute.partition=shards"),
        ("show", "digits", "--partition", "one-class", "--clients", "12", "--json"),
        ("show", "digits", "--partition", "one-clas"),
        ("show", "digist"),
        ("get", "digits"),
        ("get", "digits", "--json"),
        ("get", "mnits"),
        ("get", "arrays"),
    ):
        lines += said("data", *words)
    (parent / "cache").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMX_DATA", str(parent / "data"))
        patch.setenv("XDG_CACHE_HOME", str(parent / "cache"))
        lines += said("data", "list")
        (parent / "data").mkdir()
        lines += said("data", "list", "--json")
    return "\n".join(lines)


COMMAND_PAGES: tuple[Callable[[Path], str], ...] = (
    lists_of_runs,
    statuses,
    sweeps,
    printed_replays,
    explanations,
    certificates,
    data,
)
