"""The process that runs a packed experiment again, and compares each round with its records.

It is a process of its own, so that the modules of the pack are found before all others of their
name, and so that it begins on the instructions that the experiment needs. `fedmx.pack.verification`
begins it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedmx.errors import FedmxError
from fedmx.pack.comparison import Parted, parting
from fedmx.pack.data_facts import data_facts
from fedmx.pack.errors import PackError
from fedmx.pack.manifest import Data
from fedmx.replay import RecordedRun, rerun
from fedmx.run import gather_facts
from fedmx.server.stop import Stop
from layers.compute.data.datasets import DataError
from layers.compute.engines.mxnet.runtime import one_thread
from layers.compute.errors import ComputeError
from layers.logic import BrokenModel, LogicError, TooFewUpdates

Tell = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Run the packed experiment that the arguments name; tell what happens as JSON, line by line.

    The arguments are the unpacked run folder, a descriptor to write to, and a file with a JSON
    object: `data` as in the manifest, `overrides`, and whether the user trusts the code (`trust`).
    """
    folder, descriptor, file = sys.argv[1:]
    options = json.loads(Path(file).read_bytes())
    logging.getLogger("fedmx.replay").setLevel(logging.ERROR)  # versions are told with the result
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
            here = gather_facts(seed=0, mode="simulation", digest="")
            tell({"facts": here})
            parted = run_again(run, Data.model_validate(options["data"], strict=False), tell)
        except (FedmxError, ComputeError, LogicError) as error:
            tell({"error": " ".join(str(error).split())})
        else:
            tell({"parted": None if parted is None else parted.record()})
    with one_thread():
        pass  # MXNet, if nothing used it, would write a line when the process ends


def run_again(run: RecordedRun, data: Data, tell: Tell) -> Parted | None:
    """Run a recorded run again, until it parts from its records or they end.

    Args:
        run: the run.
        data: by what its data are known.
        tell: is told the number of each round that ended in the same bits.

    Returns:
        Where it parted; None: nowhere.

    Raises:
        PackError: the data are not here, or are other ones.
        FedmxError, ComputeError, LogicError: it cannot be run, or cannot go on.
    """
    here = _data_here(run, data)
    if (here.partition_sha256, here.sizes) != (data.partition_sha256, data.sizes):
        return Parted(1, (), "the partition divides the same data in another way here")
    records = run.round_records()
    clients = _by_round(run)
    steps = 0  # back, which led to the round that comes next in the records
    with rerun(run, 1) as server:
        server.stop = Stop()  # it ended with its last record, perhaps by the real time
        rounds = server.rounds()
        for number, record in records.items():
            back = record.get("stepped_back")
            steps += len(back) if isinstance(back, list) else 0
            try:
                for round in rounds:
                    if round.round >= number and len(server.steps_back.steps) >= steps:
                        break
                else:
                    return Parted(number, (), f"round {number}: here the run ended before it")
            except (TooFewUpdates, BrokenModel) as error:
                return Parted(number, (), f"round {number}: here it failed: {error}")
            parted = parting(record, clients.get(number, []), round, run.deployed)
            if parted is not None:
                return parted
            tell({"round": number})
    return None


def _data_here(run: RecordedRun, data: Data) -> Data:
    """Return by what the data are known that are here.

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


def _by_round(run: RecordedRun) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for record in run.folder.clients():
        found.setdefault(record["round"], []).append(record)
    return found
