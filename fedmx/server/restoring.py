"""Where a recorded run goes on: the checkpoint in its folder that its server is restored from."""

from __future__ import annotations

from collections.abc import Sequence

from fedmx.log import Log
from fedmx.run import CheckpointError, RunFolder
from fedmx.run.checkpoint import Checkpoint, read_checkpoint
from fedmx.server.server import Server
from layers.logic import ServerState

log = Log("fedmx.run")


def restore(server: Server, folder: RunFolder) -> None:
    """Restore a server from the checkpoint of its folder, if there is one; write nothing.

    Raises:
        RunError: no checkpoint or no record can be read, or the start of a fork is lost.
    """
    checkpoint = _newest(folder)
    if checkpoint is not None:
        checkpoint = _with_records(checkpoint, folder)
    if checkpoint is not None:
        server.restore(checkpoint.state)
        begin_where_forked(server, folder)


def begin_where_forked(server: Server, folder: RunFolder) -> None:
    """Let the server of a fork step back to the fork's first state at the farthest.

    If that state is lost, no step back leads there: the initial model is that of another run.
    """
    if not folder.forked_after:
        return
    try:
        first = read_checkpoint(folder.checkpoint_path(folder.forked_after))
    except CheckpointError as error:
        log.warning(
            "fork_begin_lost", "{reason}; no step back leads to the begin of the fork", reason=error
        )
        server.begin_from(error)
    else:
        server.begin_from(ServerState.of_tree(first.state["server"]))


def _with_records(checkpoint: Checkpoint, folder: RunFolder) -> Checkpoint | None:
    """Return the newest checkpoint whose rounds all have their records; None: there is none.

    What a simulation has lost, it makes again. A deployed run cannot, and goes on without it.

    Raises:
        RunError: the run is a fork, and has no such checkpoint.
    """
    rounds = folder.lost_rounds(checkpoint.round)
    of_clients = folder.lost_clients(checkpoint.round)
    if not rounds and not of_clients:
        return checkpoint
    lost = _lost_text(rounds, of_clients)
    if folder.facts.get("mode") == "server":
        log.warning(
            "records_lost",
            "{run}: {records} are lost; the run goes on without them{chain}",
            run=folder.path,
            records=lost,
            chain=", and its chain leaves them out" if rounds else "",
        )
        return checkpoint
    first = min([*rounds, *of_clients])
    if first <= folder.forked_after:
        raise folder.fork_lost("the records of the rounds before the fork are")
    earlier = folder.checkpoint_before(first)
    round = 0 if earlier is None else earlier.round
    folder.check_begin(round)
    log.warning(
        "records_made_again",
        "{run}: {records} are lost; the run goes on after round {after}, with them",
        run=folder.path,
        records=lost,
        after=round,
    )
    return earlier


def _lost_text(rounds: Sequence[int], of_clients: Sequence[int]) -> str:
    """Return the lost records: the rounds without one, and the rounds whose clients lack theirs."""
    lost = [f"rounds {_listed(rounds)}"] if rounds else []
    lost += [f"the clients of rounds {_listed(of_clients)}"] if of_clients else []
    return f"the records of {' and of '.join(lost)}"


def _listed(rounds: Sequence[int]) -> str:
    """Return rounds as text, those in a row as their first and last."""
    if len(rounds) > 2 and rounds[-1] - rounds[0] == len(rounds) - 1:
        return f"{rounds[0]} to {rounds[-1]}"
    return ", ".join(map(str, rounds))


def _newest(folder: RunFolder) -> Checkpoint | None:
    """Return the newest whole checkpoint; None: the run begins with the initial model.

    Raises:
        RunError: no checkpoint can be read, or the run is a fork and has none.
    """
    try:
        checkpoint = folder.latest_checkpoint()
    except CheckpointError:
        folder.check_begin(0)
        raise
    folder.check_begin(0 if checkpoint is None else checkpoint.round)
    for warning in () if checkpoint is None else checkpoint.warnings:
        log.warning("note", "{text}", text=warning)
    return checkpoint
