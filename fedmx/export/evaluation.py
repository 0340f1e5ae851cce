"""Models of runs on files of samples: each model on each file, with every metric of its run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmx.errors import FedmxError
from fedmx.export import assembly_of, load_newest
from fedmx.run import RunFolder
from layers.compute.errors import ComputeError


def evaluate(
    models: Sequence[RunFolder], data: Sequence[Path], modules: Collection[str] | None = ()
) -> list[Mapping[str, Any]]:
    """Return a row for each model and file: run, round, data, samples, loss, and each metric.

    Args:
        models: run folders; each has its last model, or that of its newest checkpoint.
        data: files of samples, as a client has them. Their test split is used, or their training
            split if they have no other.
        modules: the modules whose code the experiments may name; None: all.

    Raises:
        RunError: a run has no model yet, or its folder is incomplete.
        FedmxError: a file cannot be read, or does not fit a model.
    """
    rows: list[Mapping[str, Any]] = []
    for folder in models:
        assembly = assembly_of(folder, folder.experiment(modules=modules))
        round, evaluator = load_newest(folder, assembly.engine, ""), assembly.evaluator
        for path in data:
            try:
                samples = assembly.data.own_tests(path)
                if samples is None:
                    samples = assembly.data.materialise(*assembly.data.own_training(path))
                scores = assembly.engine.scores(samples, outputs=evaluator.needs_outputs)
            except ComputeError as error:
                raise FedmxError(f"{folder.name}: {error}") from None
            values = evaluator.values(scores, samples.y)
            about = {"run": folder.name, "round": round, "data": str(path), "samples": len(samples)}
            rows.append({**about, **values})
    return rows
