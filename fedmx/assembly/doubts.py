"""What an experiment does that its author may not have meant: one line each, before round 1.

Nothing here is an error: data may lack a class on purpose, and a partition may leave samples out.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.components.engines import MXNET, TORCH
from layers.compute.data.dataset import Samples
from layers.compute.data.datasets import Dataset
from layers.compute.losses.cross_entropy import Softmax
from layers.logic.algorithms.asynchronous import Concurrent

ROWS = 32
"""The test samples whose inputs and outputs are looked at."""

LEAST_SPREAD, MOST_SPREAD = 0.02, 50.0
"""The standard deviation of inputs below or above which a factor is probably wrong."""

LISTED = 5


def doubts(assembly: Assembly, *, simulated: bool) -> Iterator[str]:
    """Yield what may not be meant in an experiment.

    Args:
        assembly: the parts of the experiment.
        simulated: whether its clients have the samples that its partition gives them.
    """
    yield from _settings(assembly)
    if not len(assembly.data.dataset.test):
        return
    yield from of_data(assembly, divided=simulated)
    few = assembly.data.materialise(
        assembly.data.dataset.test, np.arange(min(ROWS, len(assembly.data.dataset.test)))
    )
    yield from _inputs(few)
    yield from _outputs(assembly, few)


def of_data(assembly: Assembly, *, divided: bool = True) -> Iterator[str]:
    """Yield what may not be meant in the labels and, if it is used, the partition."""
    dataset = assembly.data.dataset
    if not isinstance(dataset, Dataset):
        return  # its samples come client by client
    if dataset.targets.classes:
        yield from _missing_classes(dataset)
    if not divided:
        return
    yield from _users(assembly, dataset)
    rest = assembly.held_back.rest
    total = len(dataset.train) if rest is None else len(rest)
    uses = np.bincount(np.concatenate(list(assembly.parts[0])), minlength=len(dataset.train))
    unused, shared = total - int((uses > 0).sum()), int((uses > 1).sum())
    words = [
        *([f"{unused:,} in no client's part"] if unused else []),
        *([f"{shared:,} in the parts of several clients, or twice in one"] if shared else []),
    ]
    if words:
        name = assembly.experiment.compute.partition.name
        yield f"compute.partition: {name} has {' and '.join(words)}, of {total:,} training samples"


def _missing_classes(dataset: Dataset) -> Iterator[str]:
    """Yield the classes without a training sample."""
    classes = dataset.targets.classes
    train, test = (
        np.bincount(split.y, minlength=classes) for split in (dataset.train, dataset.test)
    )
    if missing := np.flatnonzero(train == 0).tolist():
        tested = np.flatnonzero((train == 0) & (test > 0)).tolist()
        also = f"; the test split has samples of {_listed(tested)}" if tested else ""
        yield (
            f"compute.data: {dataset.name} has {classes:,} classes, and no training sample "
            f"of {len(missing):,} of them ({_listed(missing)}){also}"
        )


def _users(assembly: Assembly, dataset: Dataset) -> Iterator[str]:
    """Yield whether clients are others than the settings of the data say."""
    compute, clients = assembly.experiment.compute, assembly.experiment.clients
    column, users = compute.data.settings.get("client"), dataset.train.users
    if column is None or users is None:
        return
    values = len(np.unique(users))
    if compute.partition.name != "by-user" or clients != values:
        yield (
            f"compute.partition: {compute.partition.name} divides the samples of {values:,} values "
            f"of {column} among {clients:,} clients; `partition: by-user` and `clients: {values}` "
            "make each value a client"
        )


def _settings(assembly: Assembly) -> Iterator[str]:
    """Yield settings that have no effect, since another one decides."""
    experiment, selector = assembly.experiment, assembly.preset.selector
    for given in (experiment.logic.selector, experiment.logic.preset):
        count = None if given is None else given.settings.get("count")
        if given is not None and count is not None and "fraction" in given.settings:
            yield given.problem(f"count {count} decides, and fraction has no effect")
    train = experiment.compute.train
    if train.steps is not None and train.epochs != type(train).model_fields["epochs"].default:
        yield f"compute.train: steps {train.steps} decides, and epochs {train.epochs} has no effect"
    if experiment.compute.model.name == "lstm" and experiment.compute.engine == MXNET:
        install = "" if find_spec(TORCH) else " (in fedmx's checkout: pip install -e '.[torch]')"
        yield (
            "compute.model: lstm takes up to 1.4 times as long in MXNet as in PyTorch; a PyTorch "
            f"module of your own with compute.engine: torch{install} trains faster"
        )
    clients = experiment.clients - len(experiment.without)
    if isinstance(selector, Concurrent) and selector.concurrency > clients:
        yield (
            f"logic.selector: concurrency {selector.concurrency} is more than the {clients} "
            "clients, which all train at the same time"
        )


def _inputs(few: Samples) -> Iterator[str]:
    """Yield whether the inputs look wrong by a factor."""
    if few.x.dtype.kind != "f":
        return
    spread = float(few.x.std())
    if not LEAST_SPREAD <= spread <= MOST_SPREAD:
        low, high = float(few.x.min()), float(few.x.max())
        yield (
            f"compute.normalise: the model's inputs go from {low:.4g} to {high:.4g} with a "
            f"standard deviation of {spread:.2g}, which suggests a wrong scale, mean or std"
        )


def _outputs(assembly: Assembly, few: Samples) -> Iterator[str]:
    """Yield whether the model's outputs are shares already."""
    engine, start = assembly.engine, assembly.start
    if not isinstance(engine.own_loss, Softmax):
        return
    initial = engine.initial(assembly.experiment.seed)
    engine.load(*(initial if start is None else (start.weights, start.buffers)))
    shares = engine.outputs(few).logits
    if shares.min() >= 0 and np.allclose(shares.sum(axis=1), 1, atol=1e-4):
        yield (
            "compute.model: the outputs of each sample add up to 1, as after a softmax, and the "
            "loss applies one: remove it from the model"
        )


def _listed(numbers: list[int]) -> str:
    more = len(numbers) - LISTED
    return ", ".join(map(str, numbers[:LISTED])) + (f" and {more:,} more" if more > 0 else "")
