"""Diff: the first round, client and step in which two recorded runs diverge."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.components.component import Component
from fedmx.experiment import Experiment
from fedmx.experiment.model import NOT_IN_DIGEST, tree_of
from fedmx.history.divergence import (
    OF_THE_NETWORK,
    Divergence,
    RoundRecords,
    other_bits,
    other_records,
)
from fedmx.history.recorded import NoPart, RecordedRun, other_versions, rerun
from fedmx.history.records import CheckedRecords
from fedmx.history.replay import SERIAL, Part, all_same, replay_parts
from fedmx.history.values import OtherValues, first_other
from fedmx.journal.chain import CHAIN, model_hash
from fedmx.run import RunError, RunFolder
from layers.compute.data.datasets import Files

OF_DATA = {"shape": "shape", "targets": "targets", "data_sha256": "SHA-256"}
"""The facts of a run about its data, and their names in words."""


def diff(
    one: str | Path | RunFolder | RecordedRun,
    other: str | Path | RunFolder | RecordedRun,
    *,
    modules: Collection[str] | None = (),
    files: Files | None = None,
) -> DiffReport:
    """Return where two runs diverge: settings, data, then the first round, client and step.

    The round is found by bisection over the recorded chains, the client by its recorded hashes, and
    the step by replaying that client's part of both runs from their nearest checkpoints.

    ::

        print(diff("runs/a-20260131-093000", "runs/a-20260201-101500").sentence)

    Args:
        one: a run folder, or a run that is open and whose executor is serial.
        other: the other one.
        modules: the modules whose code the experiments may name; None: all.
        files: where data sets are; None: where the environment says.

    Raises:
        RunError: the records have no hashes, or a run cannot be run again here.
        ExperimentError: an experiment cannot be built here, or names code that is not allowed.
    """
    mine, theirs = (
        run
        if isinstance(run, RecordedRun)
        else RecordedRun.open(run, modules=modules, overrides=SERIAL, files=files)
        for run in (one, other)
    )
    found, rounds = divergence_of(mine, theirs)
    facts = mine.folder.facts, theirs.folder.facts
    engines = [run.experiment.compute.engine for run in (mine, theirs)]
    why, step = _before_a_fork(found, mine, theirs), None
    if not why:
        try:
            step = _step(mine, theirs, found)
        except OtherClients as error:
            why = str(error)
    return DiffReport(
        runs=(str(mine.folder.path), str(theirs.folder.path)),
        settings=tuple(other_settings(mine.experiment, theirs.experiment)),
        versions=tuple(other_versions(*facts)),
        data=tuple(
            f"{word} {facts[0][name]} against {facts[1][name]}"
            for name, word in OF_DATA.items()
            if name in facts[0] and name in facts[1] and facts[0][name] != facts[1][name]
        ),
        last_rounds=(mine.records.last, theirs.records.last),
        rounds=rounds,
        divergence=found,
        step=step,
        not_replayed=why,
        engines=tuple(engines) if len(set(engines)) > 1 else (),
    )


def _before_a_fork(found: Divergence | None, *runs: RecordedRun) -> str:
    """Return why the round is not replayed, if a run is a fork after it; empty: none is."""
    if found is None or found.what not in ("fold", "update"):
        return ""
    for run in runs:
        if found.round <= run.folder.forked_after:
            return (
                f"not replayed, since {run.folder.path} is a fork after round "
                f"{run.folder.forked_after}: give the run before it, "
                f"{run.folder.facts['fork']['folder']}"
            )
    return ""


def _step(one: RecordedRun, other: RecordedRun, found: Divergence | None) -> OtherStep | None:
    match found:
        case Divergence(what="update", round=round, clients=(client, *_)):
            return step_of(one, other, round, client)
        case Divergence(what="fold", round=round):
            return fold_of(one, other, round)
    return None


def divergence_of(one: RecordedRun, other: RecordedRun) -> tuple[Divergence | None, int]:
    """Return where two runs diverge, as far as their records say, and how many rounds both have.

    Each link of the chain holds all rounds before it. So the first round that differs is found by
    bisection, whatever the number of rounds.

    Raises:
        RunError: the records of a run have no hashes.
    """
    records = _rounds(one.records), _rounds(other.records)
    common = sorted(records[0].keys() & records[1].keys())

    def differs(round: int) -> bool:
        return bool(records[0][round][CHAIN] != records[1][round][CHAIN])

    place = bisect_left(common, True, key=differs)
    if place == len(common):
        return None, len(common)
    left_out = OF_THE_NETWORK if one.deployed != other.deployed else ()
    # Where the models do not differ, evaluations and counted bytes may.
    first = common[place]
    later = (number for number in common[place:] if _models_differ(records, number))
    until = next(later, common[-1])
    clients = one.records.clients(first, until), other.records.clients(first, until)

    def versions(round: int) -> tuple[RoundRecords, RoundRecords]:
        mine, theirs = (
            RoundRecords.of(kept[round], found.get(round, ()))
            for kept, found in zip(records, clients, strict=True)
        )
        return mine, theirs

    numbers = common[place : common.index(until) + 1]
    for number in numbers:
        if found := other_bits(number, *versions(number)):
            return found, len(common)
    for number in numbers:  # the first one, unless only what is left out differs there
        if found := other_records(number, *versions(number), left_out):
            return found, len(common)
    return None, len(common)


def _rounds(records: CheckedRecords) -> dict[int, dict[str, Any]]:
    if not records.last:
        raise records.error("no round is recorded; give another run")
    return {number: records.hashed(number) for number in records.rounds}


def _models_differ(records: Sequence[Mapping[int, Mapping[str, Any]]], round: int) -> bool:
    one, other = (kept[round]["model_sha256"] for kept in records)
    return bool(one != other)


MOST = 5  # settings in the sentence


@dataclass(frozen=True)
class DiffReport:
    """Where two runs diverge.

    Attributes:
        runs: the names of their folders.
        settings: the settings that differ and decide the result, each in words.
        versions: the versions and machine facts that differ and decide bits, each in words.
        data: how the data differ, as far as the runs say, each in words.
        last_rounds: the last round that each has recorded.
        rounds: number of rounds that both have.
        divergence: the first round whose records differ; None: all rounds that both have agree.
        step: the result of replaying it in both runs; None: it was not replayed.
        not_replayed: why a replay was left out; empty: none was.
        engines: the engines of the two runs, if they differ.
    """

    runs: tuple[str, str]
    settings: tuple[str, ...]
    versions: tuple[str, ...]
    data: tuple[str, ...]
    last_rounds: tuple[int, int]
    rounds: int
    divergence: Divergence | None
    step: OtherStep | None = None
    not_replayed: str = ""
    engines: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether all rounds that both have are the same bits."""
        return self.divergence is None

    @property
    def sentence(self) -> str:
        """Where the runs diverge, in one sentence with the numbers."""
        text = self._found()
        if self.settings:
            listed = [*self.settings[:MOST]]
            if len(self.settings) > MOST:
                listed.append(f"and {len(self.settings) - MOST} more")
            text = f"the settings differ ({', '.join(listed)}); {text}"
        if self.data:
            text = f"the data differ ({', '.join(self.data)}); {text}"
        if self.versions:
            text = f"{text}; {', '.join(self.versions)}"
        if self.engines:
            text = f"another engine, {' against '.join(self.engines)}; {text}"
        return text

    def record(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "runs": self.runs,
            "same": self.same,
            "sentence": self.sentence,
            **vars(self),
            "divergence": None if self.divergence is None else self.divergence.record(),
            "step": None if self.step is None else self.step.record(),
        }

    def _found(self) -> str:
        found, step = self.divergence, self.step
        if found is None:
            return self._same_text()
        where = f"round {found.round}"
        if found.client is not None:
            where += f", client {found.client}"
        if step is None:
            return f"{found}; {self.not_replayed}" if self.not_replayed else str(found)
        if not step.step:
            return f"{found}; {self._who_is_right(step)}"
        name, values = step.step, f"{step.other or 'only one of the runs has it'}"
        if name == FOLD:
            return f"{where}, in the fold: {found.text}: {values}"
        if name == START:
            return f"before round 1, the initial weights: {values}"
        if step.version is not None:
            where += f", its task of version {step.version}"
        place = "in the task" if name == "task" else f"after {name}"
        more = len(found.clients) - 1
        text = f"{where}, {place}: {values}"
        if more:
            text += f" ({more} other {'client differs' if more == 1 else 'clients differ'}, too)"
        for run, agrees in zip(self.runs, step.agrees, strict=True):
            if agrees is False:
                text += f"; replayed here, {run} ends in other bits than it recorded"
        return text

    def _same_text(self) -> str:
        one, other = self.last_rounds
        text = f"all {self.rounds} rounds that both have are the same bits"
        if one == other:
            return text
        ends = f"{self.runs[one > other]} ends there, {self.runs[one < other]} goes on"
        return f"{text}; {ends} to round {max(one, other)}"

    def _who_is_right(self, step: OtherStep) -> str:
        text = "replayed here, both give the same bits"
        match step.agrees:
            case (True, _):
                agreeing, differing = self.runs
            case (_, True):
                differing, agreeing = self.runs
            case _:
                return f"{text}, which neither run recorded: both ran other code or elsewhere"
        return (
            f"{text}, and {agreeing} recorded them; so {differing} ran other code, in another "
            "environment, or on another machine"
        )


START, FOLD = "initial weights", "fold"


class OtherClients(RunError):
    """A round that is run again has other clients than its record."""


@dataclass(frozen=True)
class OtherStep:
    """What replaying a part in both runs says.

    Attributes:
        step: the first step whose outcome differs, as in ``Quantise.send``; empty: none does.
        end: server or client.
        other: the values that differ; None: the steps themselves are others, or none differs.
        agrees: for each run whether its replay equals the records; None: nothing is recorded.
        version: the version of the model that the task started from, where rounds do not wait;
            otherwise None.
    """

    step: str
    end: str
    other: OtherValues | None
    agrees: tuple[bool | None, bool | None]
    version: int | None = None

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        other = self.other
        values = {"differing": other.differing, "values": other.values} if other else {}
        return {
            "step": self.step,
            "end": self.end,
            **({} if self.version is None else {"version": self.version}),
            **values,
            "text": str(other or ""),
            "agrees": list(self.agrees),
        }


def _replayed(run: RecordedRun, round: int, client: int) -> tuple[Part, ...]:
    try:
        return replay_parts(run, round, client, keep=True)
    except NoPart:
        raise OtherClients(
            f"not replayed, since round {round} of {run.folder.path} has other clients when it is "
            "run again here: it ran other code, in another environment, or on another machine"
        ) from None


def step_of(one: RecordedRun, other: RecordedRun, round: int, client: int) -> OtherStep:
    """Replay a client's part in both runs, and return the first step that differs.

    Raises:
        OtherClients: run again here, a run has other clients in this round.
        RunError: a run cannot be run again here.
    """
    mine, theirs = (_replayed(run, round, client) for run in (one, other))
    agrees = all_same(mine), all_same(theirs)
    for left, right in zip(mine, theirs, strict=False):
        step = _step_of_parts(left, right)
        if step is not None:
            return replace(step, agrees=agrees)
    if len(mine) != len(theirs):
        text = f"the end: {len(mine)} against {len(theirs)} tasks"
        return OtherStep(text, "server", None, agrees)
    return OtherStep("", "", None, agrees)


def _step_of_parts(mine: Part, theirs: Part) -> OtherStep | None:
    """Return the first step of a task that differs; None: none does."""
    for left, right in zip(mine.steps, theirs.steps, strict=False):
        if (left.end, left.step) != (right.end, right.step):
            break
        found = first_other(left.arrays, right.arrays)
        if found is not None:
            name = "task" if left.step == "start" else left.step
            if mine.round == 1 and name == "task" and found.name in ("weights", "buffers"):
                name = START
            return OtherStep(name, left.end, found, (None, None), mine.version)
    places = [[(x.end, x.step, x.pass_number) for x in part.steps] for part in (mine, theirs)]
    if places[0] == places[1]:
        return None
    return OtherStep(_first_other_place(mine, theirs), "client", None, (None, None), mine.version)


def fold_of(one: RecordedRun, other: RecordedRun, round: int) -> OtherStep:
    """Run a round again in both runs, and return how the models after it differ."""
    models: list[dict[str, np.ndarray]] = []
    agrees: list[bool | None] = []
    for run in (one, other):
        recorded = run.records.rounds[round]["model_sha256"]
        with rerun(run, round) as server:
            next(iter(server))
            state = server.state
            models.append({"weights": state.weights, "buffers": state.buffers})
            agrees.append(model_hash(state.weights, state.buffers) == recorded)
    found = first_other(*models)
    step = "" if found is None else FOLD
    return OtherStep(step, "server", found, (agrees[0], agrees[1]))


def _first_other_place(one: Part, other: Part) -> str:
    mine, theirs = ([x.step for x in part.steps] for part in (one, other))
    for left, right in zip(mine, theirs, strict=False):
        if left != right:
            return f"{left} against {right}"
    return f"the end: {len(mine)} against {len(theirs)} steps"


ABSENT = "not given"


def other_settings(one: Experiment, other: Experiment) -> list[str]:
    """Return the settings that differ, each as ``logic.hooks.0.mu: 0.1 against 0.2``."""
    mine, theirs = dict(_flat(_deciding(one), "")), dict(_flat(_deciding(other), ""))
    return [
        f"{path}: {mine.get(path, ABSENT)} against {theirs.get(path, ABSENT)}"
        for path in dict.fromkeys((*mine, *theirs))
        if mine.get(path, ABSENT) != theirs.get(path, ABSENT)
    ]


def _deciding(experiment: Experiment) -> dict[str, Any]:
    tree = tree_of(experiment, _spelled)
    return {key: value for key, value in tree.items() if key not in NOT_IN_DIGEST}


def _spelled(component: Component) -> dict[str, Any]:
    return {"name": component.name, **component.settings}


def _flat(tree: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a tree with their paths, as texts."""
    inner: Mapping[Any, Any] = {}
    if isinstance(tree, Mapping):
        inner = tree
    elif isinstance(tree, list):
        inner = dict(enumerate(tree))
    if not inner:
        yield path, json.dumps(tree, default=str)
    for key, value in inner.items():
        yield from _flat(value, f"{path}.{key}" if path else str(key))
