"""The server of a recorded run as it stood before one of its rounds, ready to go on from there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedmx.components.user_code import own_code
from fedmx.course.hashes import model_hash
from fedmx.log import Log
from fedmx.replay.kept_checkpoints import KeptCheckpoints
from fedmx.replay.recorded_run import RecordedRun
from fedmx.replay.versions import other_versions
from fedmx.run import RunError, RunFolder, gather_facts
from fedmx.server.restoring import begin_where_forked
from fedmx.server.server import Server
from fedmx.server.stop import Stop
from fedmx.simulation.simulate import simulate
from fedmx.simulation.simulate_course import simulate_course
from layers.compute.data.datasets import Files

log = Log("fedmx.replay")


def rerun(
    run: str | Path | RunFolder | RecordedRun,
    round: int = 1,
    *,
    modules: Collection[str] | None = (),
    overrides: Sequence[str] = (),
    files: Files | None = None,
) -> Server:
    """Return the server of a recorded run as it stood before `round`; go on with it to replay.

    ::

        with rerun("runs/quickstart-20260131-093000", 37) as server:
            for round in server:
                ...

    It starts from the nearest checkpoint before the round, or from the beginning, and runs the
    rounds in between again; a deployed run always starts from the beginning, and is simulated as
    its course says. The server writes nothing. A warning tells if the data differ, or
    what decides bits of versions and of the machine.

    Args:
        run: the run folder, or a run that is open.
        round: number of the round that would come next, from 1 to one after the last recorded one.
        modules: the modules whose code the experiment may name; None: all.
        overrides: ``PATH=VALUE`` texts that do not change the result, such as the executor.
        files: where data sets are; None: where the environment says.

    Raises:
        RunError: the run cannot be run again here, has no such round, or is a fork whose first
            checkpoint is lost.
        ExperimentError: its experiment cannot be built here, or names code that is not allowed.
    """
    if not isinstance(run, RecordedRun):
        run = RecordedRun.open(run, modules=modules, overrides=overrides, files=files)
    records = run.round_records()
    last = max(records, default=0)
    if not 1 <= round <= last + 1:
        raise RunError(
            f"{run.folder.path}: there is no round {round} to replay; give one from 1 to {last}"
        )
    if round <= run.folder.forked_after:
        origin = run.folder.facts["fork"]["folder"]
        raise RunError(
            f"{run.folder.path}: this is a fork, and round {round} is of the run before it; give "
            f"that run: {origin}"
        )
    # Deployed clients keep their hooks' memory themselves, and the course has every step back.
    checkpoint = None if run.deployed else run.folder.checkpoint_before(round)
    run.folder.check_begin(0 if checkpoint is None else checkpoint.round)
    _tell_other_versions(run.folder)
    _tell_other_data(run)
    server = _server(run)
    _tell_other_code(run)
    stepped = run.steps_back(1, last) > 0
    kept = KeptCheckpoints(run.experiment.run.checkpoint, server.last_round, run.folder, stepped)
    server.recorder = kept
    if checkpoint is not None:
        server.restore(checkpoint.state)
        kept.begin(checkpoint.round, checkpoint.state)
        begin_where_forked(server, run.folder)
    steps = run.steps_back(server.state.round + 2, round)
    if server.state.round < round - 1 or steps:
        with ExitStack() as stack:
            stack.push(server)  # its workers end if the rounds in between fail
            _run_to(server, round - 1, steps, kept)
            stack.pop_all()
        _tell_other_model(server, records, run.folder)
    return server


def _server(run: RecordedRun) -> Server:
    if run.deployed:
        return simulate_course(run.assembly, run.folder)
    return simulate(run.assembly)


def _run_to(server: Server, round: int, steps: int, kept: KeptCheckpoints) -> None:
    """Run until the server stands after `round`, for the last time after so many steps back."""
    stop, server.stop = server.stop, Stop()  # what ended the run may be the real time
    for one in server.rounds():
        if one.round >= round and kept.steps >= steps:
            break
    server.stop = stop
    if server.state.round != round:  # the last step back led to it, and one round was run since
        server.restore(kept.of(round))


def _tell_other_versions(folder: RunFolder) -> None:
    """Log a warning if this machine differs from the run's in what decides bits."""
    facts = folder.facts
    here = gather_facts(seed=0, mode="simulation", digest="")
    found = other_versions(facts, here)
    if found:
        log.warning(
            "other_bits_possible",
            "{run}: other bits are possible here: {differences}",
            run=folder.path,
            differences=", ".join(found),
        )


def _tell_other_code(run: RecordedRun) -> None:
    """Log a warning if the user's own code here is not that of the run."""
    changed = run.folder.other_code(own_code(run.folder.modules_path))
    if changed:
        log.warning(
            "other_code",
            "{run}: {files}: not as in the run",
            run=run.folder.path,
            files=", ".join(changed),
        )


def _tell_other_data(run: RecordedRun) -> None:
    """Log a warning if the data here are not those of the run."""
    if not run.folder.has_data(run.assembly.data.sha256):
        name = run.assembly.data.dataset.name
        log.warning(
            "other_data",
            "{run}: {data} has other samples here than in the run",
            run=run.folder.path,
            data=name,
        )


def _tell_other_model(server: Server, records: Mapping[int, Any], folder: RunFolder) -> None:
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
