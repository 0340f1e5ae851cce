"""The folder of a run that starts now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.label_counts import LabelCounts
from fedmx.components.user_code import own_code
from fedmx.run import RunFolder, gather_facts
from fedmx.run.folder import LABELS
from layers.compute.data.datasets import Dataset


def new_run_folder(
    assembly: Assembly,
    mode: Literal["simulation", "server"],
    modules: Path | None,
    *,
    parent: Path | None = None,
    name: str | None = None,
    fill: Callable[[RunFolder], None] | None = None,
    **facts: Any,
) -> RunFolder:
    """Make the folder of a run, with all that it needs to build the model again.

    Args:
        assembly: of the run's experiment.
        mode: simulation or server.
        modules: the folder of the user's own modules; None: there is none.
        parent: the folder of all runs; None: the experiment's.
        name: begins the folder's name; None: the experiment's.
        fill: see `RunFolder.create`.
        **facts: other facts for run.json.

    Raises:
        RunError: it cannot be made.
    """
    experiment, engine = assembly.experiment, assembly.engine
    files = assembly.kept()
    # A server has none of its clients' samples; data that come client by client are not read.
    if mode == "simulation" and isinstance(assembly.data.dataset, Dataset):
        labels = LabelCounts.of(assembly)
        files |= {} if labels is None else {LABELS: labels.to_bytes()}
    return RunFolder.create(
        parent or experiment.run.folder,
        name or experiment.name,
        experiment.to_yaml(),
        gather_facts(
            seed=experiment.seed,
            mode=mode,
            digest=experiment.digest(),
            engine=experiment.compute.engine,
            **({} if modules is None else {"modules": str(modules), "code": own_code(modules)}),
            parameters=engine.weights.size,
            buffers=engine.buffers.size,
            **assembly.facts(),
            **facts,
        ),
        files,
        fill,
    )
