"""A recorded run, and its server as it stood before one of its rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmx.assembly.assembly import Assembly
from fedmx.components.user_code import own_code
from fedmx.experiment import Experiment
from fedmx.history.carrier import JournalClients
from fedmx.history.records import CheckedRecords
from fedmx.journal.chain import model_hash
from fedmx.journal.journal import Journal, UpdateArrived, journals_of
from fedmx.log import Log
from fedmx.quantities import Quantity
from fedmx.run import RunError, RunFolder, gather_facts
from fedmx.run.folder import kept_start
from fedmx.run.identity import DECIDING
from fedmx.server.of_experiment import server_of
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.server.step_back import StepBack, StepsBack
from fedmx.server.stop import Stop
from fedmx.simulation.simulated_clients import SimulatedClients
from fedmx.simulation.workers import workers_of
from layers.compute.bits import one_blas_thread
from layers.compute.data.datasets import Files
from layers.logic import BrokenModel, ClientReport, RoundReport, TooFewUpdates
from layers.logic.core.round import PlannedLane
from layers.logic.round.exchange import Begin
from layers.logic.round.pipeline import Trace
from layers.logic.round.round import RoundMachine

log = Log("fedmx.history")


@dataclass(frozen=True)
class RecordedRun:
    """A run folder with the experiment that it recorded.

    Attributes:
        folder: the run folder.
        experiment: its experiment; what decides the result is as recorded.
        files: where data sets are.
    """

    folder: RunFolder
    experiment: Experiment
    files: Files = field(default_factory=Files)

    @classmethod
    def open(
        cls,
        run: str | Path | RunFolder,
        *,
        modules: Collection[str] | None = (),
        overrides: Sequence[str] = (),
        files: Files | None = None,
    ) -> RecordedRun:
        """Open a run folder.

        Args:
            run: the folder.
            modules: the modules whose code its experiment may name; None: all.
            overrides: ``PATH=VALUE`` texts that do not change the result, such as the executor.
            files: where data sets are; None: where the environment says.

        Raises:
            RunError: it is not a run folder, or its experiment is not the recorded one.
            ExperimentError: the experiment cannot be read, or names code that is not allowed.
        """
        folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
        experiment = folder.experiment(overrides, modules=modules)
        folder.check_experiment(experiment)
        return cls(folder, experiment, files or Files())

    @cached_property
    def assembly(self) -> Assembly:
        """The parts of the experiment, with the weights that the run began from.

        Raises:
            RunError: the file of its initial weights is gone or has changed.
        """
        return Assembly(
            self.experiment,
            self.files,
            start_file=kept_start(self.folder),
            deployed=self.deployed,
        )

    @property
    def deployed(self) -> bool:
        """Whether its clients were on other machines; otherwise they were simulated."""
        return self.folder.facts.get("mode") == "server"

    @cached_property
    def records(self) -> CheckedRecords:
        """Its records, as they are when they are first read."""
        return CheckedRecords(self.folder)

    @cached_property
    def journals(self) -> Mapping[int, Journal]:
        """The journals of its rounds.

        Raises:
            JournalError: there is none, or one is not understood.
        """
        return journals_of(self.folder.journal(), str(self.folder.journal_path))


BUILD = " build"


def facts_here(experiment: Experiment) -> dict[str, Any]:
    """Return the facts that a run on the engine of an experiment has in this process."""
    engine = experiment.compute.engine
    return gather_facts(seed=0, mode="simulation", digest="", engine=engine)


def other_versions(facts: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Return what decides bits and differs, each as ``numpy 2.5.5 against 1.23.5``.

    A fact that one of the two does not have is left out, and the build of a package whose version
    differs. A device that promises no bits, and an executor whose bits are its own, are named even
    if they are the same.
    """
    devices = sorted({one["device"] for one in (facts, others) if "device" in one})
    cohorts = sorted({one["cohort"] for one in (facts, others) if "cohort" in one})
    mine, theirs = _deciding_facts(facts), _deciding_facts(others)
    differing = [name for name in mine if name in theirs and mine[name] != theirs[name]]
    return [
        f"{name} {mine[name]} against {theirs[name]}"
        for name in differing
        if name.removesuffix(BUILD) == name or name.removesuffix(BUILD) not in differing
    ] + [
        *(f"device {device}, on which bits are not promised" for device in devices),
        *(f"executor cohort:{most}, whose bits are its own" for most in cohorts),
    ]


def _deciding_facts(facts: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in DECIDING:
        if name == "builds":
            builds = facts.get(name) or {}
            found |= {f"{package}{BUILD}": str(value) for package, value in builds.items()}
        elif name == "code":
            code = facts.get(name) or {}
            found |= {file: str(sha256)[:16] for file, sha256 in code.items()}
        elif name == "variables" and isinstance(given := facts.get(name), Mapping):
            found[name] = " ".join(f"{key}={given[key]}" for key in sorted(given)) or "none"
        elif name in facts:
            found[name] = str(facts[name])
    return found


def rerun(
    run: str | Path | RunFolder | RecordedRun,
    round: int = 1,
    *,
    strict: bool = False,
    modules: Collection[str] | None = (),
    overrides: Sequence[str] = (),
    files: Files | None = None,
) -> Server:
    """Return the server of a recorded run as it stood before `round`; go on with it to replay.

    ::

        with rerun("runs/quickstart-20260131-093000", 37) as server:
            for round in server:
                ...

    It starts from the nearest checkpoint before the round, or from the beginning, and its rounds
    follow the run's journal, whether the run was simulated or deployed. A deployed run starts from
    the beginning if its clients keep memory, which is in no checkpoint. The server writes nothing.
    It logs a warning if the data differ, or versions or machine facts that affect the bits.

    Args:
        run: the run folder, or a run that is open.
        round: number of the round that would come next, from 1 to one after the last recorded one.
        strict: whether an update that differs from the recorded one raises a `JournalError`;
            otherwise the round goes on with it.
        modules: the modules whose code the experiment may name; None: all.
        overrides: ``PATH=VALUE`` texts that do not change the result, such as the executor.
        files: where data sets are; None: where the environment says.

    Raises:
        RunError: the run cannot be run again here, has no such round, or is a fork whose first
            checkpoint is lost.
        JournalError: the run has no journal, or what happens here does not follow it.
        ExperimentError: its experiment cannot be built here, or names code that is not allowed.
    """
    if not isinstance(run, RecordedRun):
        run = RecordedRun.open(run, modules=modules, overrides=overrides, files=files)
    folder, last = run.folder, run.records.last
    if not 1 <= round <= last + 1:
        raise RunError(
            f"{folder.path}: there is no round {round} to replay; give one from "
            f"{folder.forked_after + 1} to {last}"
        )
    if round <= folder.forked_after:
        raise RunError(
            f"{folder.path}: this is a fork, and round {round} is of the run before it; give "
            f"that run: {folder.facts['fork']['folder']}"
        )
    checkpoint = folder.checkpoint_before(round)
    if checkpoint is not None and run.deployed and _clients_keep_memory(run):
        checkpoint = None
    folder.check_begin(0 if checkpoint is None else checkpoint.round)
    _warn_of_differences(run)
    server = _server(run, strict)
    if checkpoint is not None:
        server.restore(checkpoint.state)
    if server.state.round < round - 1:
        with ExitStack() as stack:
            stack.push(server)  # its workers end if the rounds in between fail
            for one in server.rounds():
                if one.round == round - 1:
                    break
            stack.pop_all()
        _warn_of_other_model(server, run.records.rounds, folder)
    if round in run.journals:
        _step_back_before(server, round, run.journals)
        server.reason = ""
    return server


def following(
    assembly: Assembly,
    journals: Mapping[int, Journal],
    last_round: int,
    *,
    untrusted: bool,
    strict: bool,
) -> Server:
    """Return the server of an experiment before its first round, whose rounds follow journals.

    Args:
        assembly: the parts of the experiment.
        journals: the journals of its run, by round.
        last_round: the number of the run's last round.
        untrusted: whether the run was deployed.
        strict: whether an update that differs from the recorded one raises a `JournalError`.
    """
    with workers_of(assembly, None) as (executor, scores):
        simulated = SimulatedClients(executor, assembly.population(), assembly.clock())
        clients = JournalClients(
            executor,
            journals,
            untrusted=untrusted,
            virtual=simulated.virtual and not untrusted,
            population=lambda journal: (
                journal.population
                if untrusted
                else simulated.population_at(journal.opened_s or 0.0)
            ),
            strict=strict,
        )
        memory_of = None if untrusted else clients.memory_of
        server = server_of(assembly, clients, scores, memory_of=memory_of)
        return follow(server, journals, last_round)


def follow(server: Server, journals: Mapping[int, Journal], last_round: int) -> Server:
    """Let a server whose carrier is `JournalClients` end after the run's last round; return it."""
    server.steps_back = RecordedSteps(journals=journals)
    server.stop = EndOfJournal(last_round=last_round)
    return server


@dataclass
class RecordedSteps(StepsBack):
    """The steps back of a replayed run up to the present round.

    Attributes:
        journals: the journals of the run, by round; each has the steps that led to its round.
    """

    journals: Mapping[int, Journal] = field(default_factory=dict)

    def note(self, report: RoundReport) -> None:
        """Remember the largest updates of a round, and the steps that led to it."""
        super().note(report)
        self.lead_to(report.round)

    def lead_to(self, round: int) -> None:
        """Take the recorded steps after which a round was run."""
        known = len(self.leading_to(round))
        self.steps += map(StepBack.of, self.journals[round].stepped_back[known:])


def _step_back_before(server: Server, round: int, journals: Mapping[int, Journal]) -> None:
    """Take the steps back that led to a round; leave the clients out that they excluded."""
    assert isinstance(server.steps_back, RecordedSteps)
    server.steps_back.lead_to(round)
    server.state = server.state.excluding(journals[round].excluded)


def _server(run: RecordedRun, strict: bool) -> Server:
    server = following(
        run.assembly, run.journals, run.records.last, untrusted=run.deployed, strict=strict
    )
    server.belong_to(run.folder)
    return server


@dataclass(frozen=True)
class EndOfJournal(Stop):
    """The end of a replayed run: after the round that was its last one.

    Attributes:
        last_round: the number of that round.
    """

    last_round: int = 0

    def reason(
        self,
        round: Round,
        before: Sequence[Mapping[str, Any]] = (),
        metrics: Sequence[Quantity] = (),
    ) -> str | None:
        """Return why the run ends after `round`, or None."""
        return "the recorded run ended here" if round.round >= self.last_round else None


def run_part(server: Server, client: int, trace: Trace | None = None) -> list[ClientReport]:
    """Run a client's part in the next round of a replaying server, and nothing after it.

    The clients before it in its lane work too. All clients work if they make offers. In an
    asynchronous round all clients work until its end, since a client may have several tasks.

    Returns:
        The reports on the client's tasks, in their order.

    Raises:
        NoPart: the client has no part in the round.
    """
    carrier = server.network
    assert isinstance(carrier, JournalClients)
    if trace is not None:
        carrier.trace(trace)
    state, population = carrier.open_round(server.state)
    round = RoundMachine(
        state, server.logic, untrusted=carrier.untrusted, patience=carrier.patience, trace=trace
    )
    commands = round.start(population)
    asynchronous = server.logic.asynchronous
    with closing(round), suppress(TooFewUpdates, BrokenModel):  # the part is all that is wanted
        while not round.done:
            # Before it, hooks ask the whole cohort, and go on when all have answered.
            begins = any(isinstance(command, Begin) for command in commands)
            if begins and not asynchronous:
                lanes = round.planned or ()
                working = _working(lanes, state.round + 1, client)
                if not any(lane.offer for lane in lanes):
                    carrier.only(working)
            event, at_s = carrier.exchange(commands)
            commands = round.handle(event, at_s)
            if client in round.outcomes and not asynchronous:
                break
    reports = round.reports()
    found = [one for one in reports if one.client == client]
    if not found:
        raise _no_part(client, state.round + 1, {one.client for one in reports})
    return found


def _working(lanes: Sequence[PlannedLane], round: int, client: int) -> tuple[int, ...]:
    """Return the clients on whose updates a client's task depends, itself included.

    Raises:
        NoPart: the client has no part in the round.
    """
    for lane in lanes:
        if client in lane.clients:
            last = lane.clients.index(client) + 1 if lane.passes == 1 else None
            return lane.clients[:last]
    raise _no_part(client, round, [one for lane in lanes for one in lane.clients])


def _no_part(client: int, round: int, clients: Collection[int]) -> NoPart:
    listed = ", ".join(map(str, sorted(clients)))
    return NoPart(f"client {client} has no part in round {round}; its clients are {listed}")


class NoPart(RunError):
    """The wanted client has no part in the round."""


def _clients_keep_memory(run: RecordedRun) -> bool:
    """Return whether the hooks of a run keep memory on its clients, which no checkpoint has.

    One client's part in round 1 tells.
    """
    journal = run.journals[1]
    clients = [
        entry.event.client
        for entry in journal.entries
        if isinstance(entry.event, UpdateArrived) and entry.event.rejected is None
    ]
    if not clients:
        return True
    with _server(run, strict=False) as server, one_blas_thread():
        run_part(server, clients[0])
        ledgers = server.network.tree()["ledgers"]
    pending = ledgers.get(clients[0], {}).get("pending") or {}
    return bool(pending.get("memory", True))


def _warn_of_differences(run: RecordedRun) -> None:
    """Log a warning for each difference to the recorded run that can decide bits."""
    folder, assembly = run.folder, run.assembly
    found = other_versions(folder.facts, facts_here(run.experiment))
    if found:
        log.warning(
            "other_bits_possible",
            "{run}: other bits are possible here: {differences}",
            run=folder.path,
            differences=", ".join(found),
        )
    if not folder.has_data(assembly.data.sha256):
        name = assembly.data.dataset.name
        log.warning(
            "other_data",
            "{run}: {data} has other samples here than in the run",
            run=folder.path,
            data=name,
        )
    changed = folder.other_code(own_code(folder.modules_path))
    if changed:
        log.warning(
            "other_code",
            "{run}: {files}: not as in the run",
            run=folder.path,
            files=", ".join(changed),
        )


def _warn_of_other_model(server: Server, records: Mapping[int, Any], folder: RunFolder) -> None:
    """Log a warning if the model is not the one that the run had after this round."""
    state = server.state
    recorded = records.get(state.round, {}).get("model_sha256")
    if recorded and recorded != model_hash(state.weights, state.buffers):
        log.warning(
            "other_model",
            "{run}: run again, round {round} ended in another model",
            run=folder.path,
            round=state.round,
        )
