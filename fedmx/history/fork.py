"""Forks: another future of a run, from one of its rounds on, with other settings or clients."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.logic import keeps_places
from fedmx.assembly.run_folder import new_run_folder
from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.experiment.keys import keys_of
from fedmx.experiment.model import tree_of
from fedmx.history.recorded import RecordedRun, rerun
from fedmx.history.records import CheckedRecords
from fedmx.journal.chain import model_hash
from fedmx.privacy.account import PRIVACY
from fedmx.report.fork import Origin
from fedmx.run import RunError, RunFolder
from fedmx.run.folder import kept_start
from fedmx.run.released import Released
from fedmx.server.recorder import recorded
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.simulation.simulate import simulate
from layers.compute.data.datasets import Files
from layers.logic import SELECT, SURVEY, Hook, Preset, ServerState
from layers.logic.core.aggregator import AGGREGATE
from layers.logic.core.asset import declared_assets
from layers.logic.core.declaration import Part, held_out_by, with_inner
from layers.logic.core.local_tensors import LOCAL_TENSORS
from layers.logic.core.state import EXCLUDED
from layers.logic.core.trainer import TRAINER
from layers.logic.round.hook_order import in_order, keyed
from layers.logic.round.pipeline import removed


@dataclass(frozen=True)
class Fork:
    """A fork that was made: a run folder that ends with the round after which it begins.

    It is resumed as any run: ``fedmx resume FOLDER``, or `rounds`.

    Attributes:
        folder: the folder of the fork.
        experiment: its experiment.
        origin: the run and round that it comes from, and the changes at its beginning.
        server: the server that goes on with it.
    """

    folder: RunFolder
    experiment: Experiment
    origin: Origin
    server: Server

    def rounds(self) -> Generator[Round, None, None]:
        """Run the rounds of the fork that are left, record them in its folder, and yield each."""
        return recorded(self.server, self.folder)


def fork(
    run: str | Path | RunFolder,
    round: int | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[int] = (),
    *,
    modules: Collection[str] | None = (),
    files: Files | None = None,
) -> Fork:
    """Make a fork of a run: another future from one of its rounds on, which is simulated.

    ::

        made = fork("runs/lenet5-20260131-093000", round=40, overrides=["logic.preset=fedadam"])
        for round in made.rounds():
            print(round.round, round.accuracy)

    The run's folder is only read. The fork's folder is beside it, unless `run.folder` is set. It
    holds the records of the rounds that both have, so that it is whole when the run is gone.

    Args:
        run: the run, or its folder.
        round: the last round that both have; 0: they have the initial model; None: the last one
            that has nothing of the clients in `without`.
        overrides: the settings that change, as ``PATH=VALUE``.
        without: clients that take no part in the fork, beside those that the run is without.
        modules: the modules whose code the experiment may name, as of `Experiment.parse`.
        files: where data sets are.

    Raises:
        ExperimentError: a setting is wrong, or would make the rounds before the fork untrue.
        RunError: the run has no such round, is deployed or damaged, or ends in other bits here.
    """
    at_once = [one for one in overrides if one.partition("=")[0].split(".")[0] == "executor"]
    old = RecordedRun.open(run, modules=modules, overrides=at_once, files=files)
    folder, parent = old.folder, old.experiment
    experiment = _experiment(parent, overrides, without)
    check_settings(parent, experiment)
    data = old.assembly.data
    old.folder.check_data(data.dataset.name, data.sha256)
    new = Assembly(experiment, old.files, start_file=kept_start(folder))
    gone = tuple(one for one in experiment.without if one not in parent.without)
    before_it = Origin.of(folder.facts)
    dependence = _dependence(parent, old.assembly.preset, before_it)
    removal = Removal(gone, first_rounds(folder, gone), dependence) if gone else None
    if round is None:
        if removal is None:
            raise RunError(f"{folder.path}: say after which round the fork begins, with --round")
        round = removal.round
    if 0 < round < folder.forked_after and before_it is not None:
        raise RunError(
            f"{folder.path}: this is a fork, and round {round} is of the run before it; fork that "
            f"run: {before_it.folder}"
        )
    records = _records_before(old.records, round, experiment)
    check_held_back(old.assembly.preset, new.preset)
    memories = Memories.of(old.assembly.preset, new.preset)
    _ = new.logic  # what does not fit together is refused before anything is run again
    checkpoint: dict[str, Any] | None = None
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    if round:
        _check_noise(old.assembly, new)
        before = _state_after(old, round, records[-1])
        kept, dropped = memories.split(before)
        checkpoint = memories.checkpoint(before, gone)
        state = removed(new.logic, ServerState.of_tree(checkpoint["server"]), gone)
        checkpoint["server"] = state.tree()
    same = _same_but_without(parent, experiment)
    without_note = "" if removal is None else removal.note(round, same)
    spent = _spent(folder, old.assembly)
    origin = Origin(
        run=folder.name,
        folder=str(folder.path.resolve()),
        round=round,
        by_number=not dependence,
        overrides=tuple(overrides),
        without=gone,
        kept=kept,
        dropped=dropped,
        empty=memories.new if round else (),
        exact=None if removal is None else removal.is_exact(round),
        note=f"{without_note} {_spent_note(spent, folder)}".strip(),
    )
    place = folder.path.parent
    if experiment.run.folder != parent.run.folder:
        place = experiment.run.folder
    with ExitStack() as stack:
        server = simulate(new)
        stack.push(server)  # its workers end if no folder can be made
        made = _make_folder(place, folder, new, origin, records, checkpoint, spent)
        stack.pop_all()
    return Fork(made, experiment, origin, server)


def _experiment(parent: Experiment, overrides: Sequence[str], without: Sequence[int]) -> Experiment:
    """Return the experiment of a fork.

    Raises:
        ExperimentError: a setting is wrong.
    """
    changed = parent.with_overrides(overrides) if overrides else parent
    if without:
        everybody = sorted({*changed.without, *without})
        changed = changed.with_overrides([f"without={everybody}"])
    return changed


def _dependence(experiment: Experiment, preset: Preset, before_it: Origin | None) -> str:
    """Return why every round of a run depended on all of its clients; empty: none did.

    A round without such a dependence is the same with and without the clients that it did not
    select.
    """
    if not keeps_places(experiment, preset.selector) or not (
        before_it is None or before_it.by_number
    ):
        return f"{_name(preset.selector)} does not select by the clients' numbers alone"
    counting = [
        hook for hook in preset.hooks if any(one.counts_clients for one in with_inner(hook))
    ]
    return f"{_name(counting[0])} works with the number of clients" if counting else ""


def _state_after(run: RecordedRun, round: int, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the checkpoint of a round: the one that is kept, or one that is computed again.

    Raises:
        RunError: it belongs to another model than the recorded one.
    """
    kept = run.folder.checkpoint_before(round + 1)
    if kept is not None and kept.round == round and not run.deployed:
        state: Mapping[str, Any] = kept.state
    else:
        with rerun(run, round + 1) as server:
            state = server.checkpoint()
    found = model_hash(state["server"]["weights"], state["server"]["buffers"])
    if found != record["model_sha256"]:
        raise RunError(
            f"{run.folder.path}: run again, round {round} ended in another model than was "
            "recorded, so that the fork would not be one; fork it on the machine and with the "
            "versions of the run, or after a round that has a checkpoint"
        )
    return state


def _records_before(
    records: CheckedRecords, round: int, experiment: Experiment
) -> list[dict[str, Any]]:
    """Return the records of the rounds that a run and its fork have.

    Raises:
        RunError: the run has no such round, a record is damaged, or no round is left to run.
    """
    if not 0 <= round <= records.last:
        raise records.error(f"a fork can begin after round 0 to {records.last}, not {round}")
    if round >= experiment.rounds:
        raise records.error(
            f"round {round} is the last one of the fork's {experiment.rounds}, so that nothing is "
            f"left to run; set rounds to more, as --set rounds={2 * round}"
        )
    records.check_chain(round)
    return [records.rounds[number] for number in range(1, round + 1)]


def _same_but_without(parent: Experiment, experiment: Experiment) -> bool:
    without = f"without={list(parent.without)}"
    return experiment.with_overrides([without]).digest() == parent.digest()


def _make_folder(
    place: Path,
    parent: RunFolder,
    assembly: Assembly,
    origin: Origin,
    records: Sequence[Mapping[str, Any]],
    checkpoint: Mapping[str, Any] | None,
    spent: Mapping[str, Any],
) -> RunFolder:
    def fill(made: RunFolder) -> None:
        for record in records:
            made.append_round(record)
        made.append_clients(one for one in parent.clients() if one["round"] <= origin.round)
        made.append_evaluations(one for one in parent.evaluations() if one["round"] <= origin.round)
        for record in parent.journal():
            if record["round"] <= origin.round:
                made.append_journal(record)
        for path in sorted(parent.events_path.glob("events.out.tfevents.*")):
            shutil.copyfile(path, made.events_path / path.name)  # its later rounds are overridden
        if checkpoint is not None:
            made.save_checkpoint(origin.round, checkpoint)

    return new_run_folder(
        assembly,
        "simulation",
        parent.modules_path,
        parent=place,
        name=f"{assembly.experiment.name}-fork-{origin.round}",
        fill=fill,
        fork=origin.record(),
        **spent,
    )


def _spent(parent: RunFolder, assembly: Assembly) -> dict[str, Any]:
    """Return the fact of all that a private run has released, which its fork counts, too."""
    if assembly.account is None:
        return {}
    account = assembly.account.after(parent.facts.get(PRIVACY), parent.forked_after)
    return {PRIVACY: account.record(_last(parent))}


def _last(run: RunFolder) -> int:
    """Return the last round of which a run may have released something.

    The clients of a deployed run may have answered in a round that it has not ended, and it may
    have forgotten records that it had.
    """
    recorded = max((one["round"] for one in run.rounds()), default=0)
    if run.facts.get("mode") != "server" or run.status == "done":
        return recorded
    return max(recorded, Released(run.path).last + 1)


def _check_noise(before: Assembly, after: Assembly) -> None:
    """Check that noise which goes on over rounds is the same in a fork.

    Raises:
        ExperimentError: it is another.
    """
    old, new = before.account, after.account
    if old is None or new is None or not old.mechanism.goes_on:
        return
    if old.mechanism != new.mechanism or not _same(
        before.preset.aggregator, after.preset.aggregator
    ):
        raise ExperimentError(
            "privacy: the noise of this run goes on from round to round, so that a fork must have "
            "the same clients, selector and noise (with a budget, the same rounds); fork it after "
            "round 0, or change something else"
        )


def _spent_note(spent: Mapping[str, Any], parent: RunFolder) -> str:
    """Return the sentence about what the fork of a private run counts; empty: it is not private."""
    if not spent:
        return ""
    return f"Epsilon counts what {parent.name} has released in {_last(parent)} rounds, too."


_OF_NO_PART = (EXCLUDED, LOCAL_TENSORS)


@dataclass(frozen=True)
class Memories:
    """Which memories of a run go on in its fork.

    Attributes:
        keys: the key in the fork of each memory that goes on, by its key in the run.
        names: the names of the run's parts, by the key of their memory.
        new: the names of the fork's parts that are not in the run, or not with these settings.
    """

    keys: Mapping[str, str]
    names: Mapping[str, str]
    new: tuple[str, ...]

    @classmethod
    def of(cls, before: Preset, after: Preset) -> Memories:
        """Return which memories of a run's parts the parts of its fork continue."""
        keys = {key: key for key in _OF_NO_PART}
        names = {SELECT: _name(before.selector), SURVEY: f"answers to {_name(before.selector)}"}
        names[AGGREGATE] = _name(before.aggregator)
        new = []
        if _same(before.selector, after.selector):
            keys |= {SELECT: SELECT, SURVEY: SURVEY}
        else:
            new.append(_name(after.selector))
        if _same(before.aggregator, after.aggregator):
            keys[AGGREGATE] = AGGREGATE
        else:
            new.append(_name(after.aggregator))
        names[TRAINER] = _name(before.trainer)
        if type(before.trainer) is type(after.trainer) and _goes_on(before.trainer, after.trainer):
            keys[TRAINER] = TRAINER
        else:
            new.append(_name(after.trainer))
        old = {which: (key, hook) for which, key, hook in _numbered(before.hooks)}
        names |= {key: _name(hook) for key, hook in old.values()}
        for which, key, hook in _numbered(after.hooks):
            earlier = old.get(which)
            if earlier is not None and _goes_on(earlier[1], hook):
                keys[earlier[0]] = key
            else:
                new.append(_name(hook))
        return cls(keys, names, tuple(new))

    def carried(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Return the memories of one end, by key, that go on."""
        return {self.keys[key]: kept for key, kept in memory.items() if key in self.keys}

    def split(self, checkpoint: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the parts that keep their memory, and of the parts that lose it."""
        there = {key: None for memory in _memories_in(checkpoint) for key in memory}
        named = [key for key in self.names if key in there]
        kept = [self.names[key] for key in named if key in self.keys]
        return tuple(kept), tuple(self.names[key] for key in named if key not in self.keys)

    def checkpoint(self, before: Mapping[str, Any], without: Sequence[int]) -> dict[str, Any]:
        """Return the checkpoint that a fork begins with.

        Args:
            before: the run's checkpoint of the same round.
            without: the clients that the fork leaves out; their memory is dropped.
        """
        server, clients = before["server"], before["clients"]
        ledgers = {
            client: {name: self._state(state) for name, state in ledger.items()}
            for client, ledger in clients["ledgers"].items()
            if client not in without
        }
        accepted = {
            one: round for one, round in server["last_accepted"].items() if one not in without
        }
        memory = self.carried(server["memory"])
        if "models" in server:
            server = self._with_models(server, without)
        steps_back = {**before["steps_back"], "largest": {}}
        return {
            **before,
            "server": {**server, "memory": memory, "last_accepted": accepted},
            "clients": {**clients, "ledgers": ledgers},
            "reason": "",  # the run may have ended here
            "steps_back": steps_back,  # nor farther than to this state
        }

    def _with_models(self, server: Mapping[str, Any], without: Sequence[int]) -> dict[str, Any]:
        """Return a server's state with the models of groups if selector and aggregator go on: the
        one names the groups, the other makes their models."""
        others = {key: kept for key, kept in server.items() if key not in ("models", "groups")}
        if not self.keys.keys() >= {SELECT, AGGREGATE}:
            return others
        groups = {one: name for one, name in server["groups"].items() if one not in without}
        return {**others, "models": server["models"], "groups": groups}

    def _state(self, state: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return one of the memories of a client's ledger."""
        return None if state is None else {**state, "memory": self.carried(state["memory"])}


def _memories_in(checkpoint: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield checkpoint["server"]["memory"]
    for ledger in checkpoint["clients"]["ledgers"].values():
        yield from (state["memory"] for state in ledger.values() if state is not None)


def _numbered(hooks: Sequence[Hook]) -> Iterator[tuple[tuple[type, int], str, Hook]]:
    """Yield each hook with its class and its number in it, and the key of its memory."""
    seen: Counter[type] = Counter()
    for key, hook in keyed(in_order(hooks)).items():
        yield (type(hook), seen[type(hook)]), key, hook
        seen[type(hook)] += 1


def _goes_on(before: Part, after: Part) -> bool:
    return after.memory_fits or _same(before, after)


def _same(before: object, after: object) -> bool:
    """Return whether two parts are of one class and have the same settings."""
    if type(before) is not type(after):
        return False
    return before == after or getattr(before, "__dict__", before) == getattr(after, "__dict__", 0)


def _name(part: object) -> str:
    return type(part).__name__


@dataclass(frozen=True)
class Removal:
    """The clients that a fork leaves out, and their traces in the rounds before it.

    Attributes:
        clients: the clients.
        first: the first round in which each was selected, if it ever was.
        dependence: why every round of the run depended on all of its clients; empty: these clients
            have decided about nothing before they were selected.
    """

    clients: tuple[int, ...]
    first: Mapping[int, int]
    dependence: str

    @property
    def round(self) -> int:
        """The last round that has nothing of the clients.

        Raises:
            RunError: there is nothing of them in the run.
        """
        if self.dependence:
            return 0
        if not self.first:
            raise RunError(
                f"{_clients(self.clients)} took part in no round, so the run is already the one "
                "without; give --round to go on from one of its rounds"
            )
        return min(self.first.values()) - 1

    def is_exact(self, round: int) -> bool:
        """Return whether a fork that begins after a round has nothing of the clients."""
        return not round or not (self.dependence or self._selected_until(round))

    def _selected_until(self, round: int) -> dict[int, int]:
        return {client: at for client, at in self.first.items() if at <= round}

    def note(self, round: int, same_settings: bool) -> str:
        """Return the note about a fork that begins after a round.

        Args:
            round: the round; 0: it begins from the initial model.
            same_settings: whether its other settings are those of the run.
        """
        who, selected = _clients(self.clients), self._selected_until(round)
        they, them = ("it", "it") if len(self.clients) == 1 else ("they", "them")
        if not self.is_exact(round):
            rounds = "round 1" if round == 1 else f"rounds 1 to {round}"
            why = f"{self.dependence}, so that {rounds} depended on {who}"
            if selected:
                when = ", ".join(f"client {one} from round {at} on" for one, at in selected.items())
                they = "it" if len(selected) == 1 else "they"
                why = f"the model after round {round} holds what {they} sent ({when})"
            return f"No exact removal of {who}: {why}. A fork after round {self.round} is exact."
        why = (
            f"no round up to {round} selected {them}, and the cohorts were drawn by the clients' "
            f"numbers alone, so that {they} had no influence on the selection."
        )
        if not round:
            why = "the fork begins before round 1."
            if self.dependence:
                why += (
                    f" It has to, since {self.dependence}, so that every round depended on all "
                    "clients."
                )
        elif same_settings:
            why += (
                f" So this is the run that never had {them}: the same experiment with this setting "
                "of without, run from the beginning, has the same bits."
            )
        return f"Exact removal of {who}: {why}"


def first_rounds(run: RunFolder, clients: Sequence[int]) -> dict[int, int]:
    """Return the first round in which each of these clients was selected, if it ever was.

    A run that stepped back has forgotten the records of rounds, not what followed from them. So all
    clients may have taken part in what came after its first step back.
    """
    back = [step["to"] + 1 for one in run.rounds() for step in one.get("stepped_back", ())]
    found = dict.fromkeys(clients, min(back)) if back else {}
    for record in run.clients():
        client, round = record["client"], record["round"]
        if client in clients and record["status"] != "not-selected":
            found[client] = min(found.get(client, round), round)
    return {client: found[client] for client in clients if client in found}


def _clients(clients: Sequence[int]) -> str:
    return f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"


def check_settings(before: Experiment, after: Experiment) -> None:
    """Check that the rounds before a fork stay true with its settings.

    Args:
        before: the experiment of the run.
        after: the fork's value.

    Raises:
        ExperimentError: they would not; one line for each setting that cannot change.
    """
    trees = [tree_of(one, Component.reference) for one in (before, after)]
    problems = [
        f"{'.'.join(place)}: a fork cannot change it, since {key.rules.fixed}; leave it out, or "
        "start a new run"
        for place, key in keys_of(Experiment)
        if key.rules.fixed and _at(trees[0], place) != _at(trees[1], place)
    ]
    if (before.clock.devices is None) != (after.clock.devices is None):
        problems.append(
            "clock.devices: a fork cannot change between real and virtual time, since its rounds "
            "would be timed by two clocks; leave it out, or start a new run"
        )
    if problems:
        raise ExperimentError("; ".join(problems))


def check_held_back(before: Preset, after: Preset) -> None:
    """Check that the parts of a fork leave the clients the samples that they had.

    Raises:
        ExperimentError: they take others out before the data are divided.
    """
    parts = [(one.aggregator, *one.hooks) for one in (before, after)]
    if _held_back(parts[0]) != _held_back(parts[1]):
        every = (one for some in parts for one in some)
        names = sorted({_name(one) for one in every if _held_back([one]) != _held_back([])})
        takes = "takes" if len(names) == 1 else "take"
        raise ExperimentError(
            f"logic: a fork cannot change {' and '.join(names)}, which {takes} samples out before "
            "the data are divided, so that each client would have others; start a new run"
        )


def _held_back(parts: Sequence[Part]) -> tuple[dict[str, float], float]:
    hooks = [one for one in parts if isinstance(one, Hook)]
    shares = {name: asset.share for name, asset in declared_assets(hooks).items()}
    return shares, held_out_by(parts)


def _at(tree: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree
