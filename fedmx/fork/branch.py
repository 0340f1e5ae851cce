"""Forking: the folder of the new run, with the records and the state of the old one."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.logic import keeps_places
from fedmx.components.user_code import own_code
from fedmx.course.chain import CHAIN, START, link_of, updates_of
from fedmx.course.hashes import model_hash
from fedmx.experiment import Experiment
from fedmx.fork.memories import Memories
from fedmx.fork.removal import Removal
from fedmx.fork.settings import check_held_back, check_settings
from fedmx.replay.recorded_run import RecordedRun
from fedmx.replay.rerun import rerun
from fedmx.report.fork import Origin
from fedmx.run import RunError, RunFolder, gather_facts
from fedmx.run.checkpoint import Keep
from fedmx.run.folder import kept_start
from fedmx.server.recorder import recorded
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.simulation.simulate import simulate
from layers.compute.data.datasets import Files


@dataclass(frozen=True)
class Fork:
    """A fork that was made: a run folder that ends with the round after which it begins.

    It is resumed as any run: ``fedmx resume FOLDER``, or `rounds`.

    Attributes:
        folder: the folder of the fork.
        experiment: its experiment.
        origin: of which run it is a fork, and what happened at its begin.
        server: the server that goes on with it.
    """

    folder: RunFolder
    experiment: Experiment
    origin: Origin
    server: Server

    def rounds(self) -> Generator[Round, None, None]:
        """Run the rounds of the fork that are left, record them in its folder, and yield each."""
        checkpoint = self.experiment.run.checkpoint
        keep = Keep(checkpoint.keep.last, checkpoint.keep.every)
        return recorded(self.server, self.folder, every=checkpoint.every, keep=keep)


def fork(
    run: str | Path | RunFolder,
    round: int | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[int] = (),
    *,
    modules: Collection[str] | None = (),
    files: Files | None = None,
) -> Fork:
    """Make a fork of a simulated run: another future from one of its rounds on.

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
    if old.deployed:
        raise RunError(
            f"{folder.path}: the run was deployed, and what its clients keep is with them; only a "
            "simulated run can be forked"
        )
    experiment = _experiment(parent, overrides, without)
    check_settings(parent, experiment)
    data = old.assembly.data
    old.folder.check_data(data.dataset.name, data.sha256)
    new = Assembly(experiment, old.files, start_file=kept_start(folder))
    gone = tuple(one for one in experiment.without if one not in parent.without)
    before_it = Origin.of(folder.facts)
    by_number = keeps_places(parent, old.assembly.preset.selector) and (
        before_it is None or before_it.by_number
    )
    selector = type(old.assembly.preset.selector).__name__
    removal = Removal.of(folder, gone, selector, by_number) if gone else None
    if round is None:
        if removal is None:
            raise RunError(f"{folder.path}: say after which round the fork begins, with --round")
        round = removal.round
    if 0 < round < folder.forked_after and before_it is not None:
        raise RunError(
            f"{folder.path}: this is a fork, and round {round} is of the run before it; fork that "
            f"run: {before_it.folder}"
        )
    records = _records(folder, round, experiment)
    check_held_back(old.assembly.preset.hooks, new.preset.hooks)
    memories = Memories.of(old.assembly.preset, new.preset)
    _ = new.logic  # what does not fit together is refused before anything is run again
    checkpoint: dict[str, Any] | None = None
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    if round:
        before = _state_after(old, round, records[-1])
        kept, dropped = memories.split(before)
        checkpoint = memories.checkpoint(before, gone)
    origin = Origin(
        run=folder.name,
        folder=str(folder.path.resolve()),
        round=round,
        by_number=by_number,
        overrides=tuple(overrides),
        without=gone,
        kept=kept,
        dropped=dropped,
        empty=memories.new if round else (),
        exact=None if removal is None else removal.is_exact(round),
        note="" if removal is None else removal.note(round, _same_but_without(parent, experiment)),
    )
    place = folder.path.parent
    if experiment.run.folder != parent.run.folder:
        place = experiment.run.folder
    with ExitStack() as stack:
        server = simulate(new)
        stack.push(server)  # its workers end if no folder can be made
        made = _make_folder(place, folder, new, server, origin, records, checkpoint)
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


def _state_after(run: RecordedRun, round: int, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the checkpoint of a round: the one that is kept, or one that is computed again.

    Raises:
        RunError: it is not of the model that was recorded.
    """
    kept = run.folder.checkpoint_before(round + 1)
    if kept is not None and kept.round == round:
        state: Mapping[str, Any] = kept.state
    else:
        with rerun(run, round + 1) as server:
            state = server.checkpoint()
    found = model_hash(state["server"]["weights"], state["server"]["buffers"])
    if found != record.get("model_sha256", found):
        raise RunError(
            f"{run.folder.path}: run again, round {round} ended in another model than was "
            "recorded, so that the fork would not be one; fork it on the machine and with the "
            "versions of the run, or after a round that has a checkpoint"
        )
    return state


def _records(folder: RunFolder, round: int, experiment: Experiment) -> list[dict[str, Any]]:
    """Return the records of the rounds that a run and its fork have.

    Raises:
        RunError: the run has no such round, a record is damaged, or no round is left to run.
    """
    records = folder.rounds()
    last = records[-1]["round"] if records else 0
    if not 0 <= round <= last:
        raise RunError(f"{folder.path}: a fork can begin after round 0 to {last}, not {round}")
    if round >= experiment.rounds:
        raise RunError(
            f"{folder.path}: round {round} is the last one of the fork's {experiment.rounds}, so "
            f"that nothing is left to run; set rounds to more, as --set rounds={2 * round}"
        )
    kept = [record for record in records if record["round"] <= round]
    clients = [record for record in folder.clients() if record["round"] <= round]
    if [record["round"] for record in kept] != list(range(1, round + 1)) or folder.damage:
        raise RunError(
            f"{folder.path}: its records are damaged, so that a fork would not be whole: "
            f"{'; '.join(folder.damage) or 'rounds are missing'}"
        )
    _check_chain(folder, kept, clients)
    return kept


def _check_chain(
    folder: RunFolder, rounds: Sequence[Mapping[str, Any]], clients: Sequence[Mapping[str, Any]]
) -> None:
    """Check that the records which a fork takes over fit the chain; those of old have none.

    Raises:
        RunError: those of a round do not.
    """
    updates, link = updates_of(clients), START
    for record in rounds:
        if CHAIN not in record:
            continue
        link = link_of(link, record, updates.get(record["round"], {}))
        if link != record[CHAIN]:
            raise RunError(
                f"{folder.path}: the records of round {record['round']} do not fit the chain: the "
                "run ended while they were written, or they were changed; resume the run if it is "
                "not done, or fork it after an earlier round"
            )


def _same_but_without(parent: Experiment, experiment: Experiment) -> bool:
    without = f"without={list(parent.without)}"
    return experiment.with_overrides([without]).digest() == parent.digest()


def _make_folder(
    place: Path,
    parent: RunFolder,
    assembly: Assembly,
    server: Server,
    origin: Origin,
    records: Sequence[Mapping[str, Any]],
    checkpoint: Mapping[str, Any] | None,
) -> RunFolder:
    experiment, own = assembly.experiment, parent.modules_path
    facts = gather_facts(
        seed=experiment.seed,
        mode="simulation",
        digest=experiment.digest(),
        **({} if own is None else {"modules": str(own), "code": own_code(own)}),
        parameters=server.state.weights.size,
        buffers=server.state.buffers.size,
        **assembly.facts(),
        fork=origin.record(),
    )

    def fill(made: RunFolder) -> None:
        for record in records:
            made.append_round(record)
        made.append_clients(one for one in parent.clients() if one["round"] <= origin.round)
        for path in sorted(parent.events_path.glob("events.out.tfevents.*")):
            shutil.copyfile(path, made.events_path / path.name)  # its later rounds are overridden
        if checkpoint is not None:
            made.save_checkpoint(origin.round, checkpoint)

    name = f"{experiment.name}-fork-{origin.round}"
    return RunFolder.create(place, name, experiment.to_yaml(), facts, assembly.kept(), fill)
