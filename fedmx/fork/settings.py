"""The settings that a fork may change: those that decide about its future alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.experiment.model import tree_of
from layers.logic import Hook
from layers.logic.core.asset import declared_assets

FIXED: Mapping[tuple[str, ...], str] = {
    ("seed",): "the rounds before it were drawn from the seed",
    ("clients",): "the samples are divided among them; without leaves clients out",
    ("compute", "model"): "the weights that it begins with are of the model",
    ("compute", "data"): "the rounds before it were trained on the data",
    ("compute", "partition"): "the rounds before it were trained on these parts of the data",
    ("compute", "normalise"): "the rounds before it were trained on these inputs",
    ("compute", "start"): "the weights that it begins with come from the run",
    ("compute", "bits"): "the rounds before it were computed on these instructions",
    ("compute", "evaluate", "sample"): "its curve and the run's must be of the same samples",
}
"""The settings that a fork cannot change, each with the reason."""


def check_settings(before: Experiment, after: Experiment) -> None:
    """Check that the rounds before a fork stay true with its settings.

    Args:
        before: the experiment of the run.
        after: that of the fork.

    Raises:
        ExperimentError: they would not; one line for each setting that cannot change.
    """
    trees = [tree_of(one, Component.reference) for one in (before, after)]
    problems = [
        f"{'.'.join(place)}: a fork cannot change it, since {reason}; leave it out, or start a "
        "new run"
        for place, reason in FIXED.items()
        if _at(trees[0], place) != _at(trees[1], place)
    ]
    if (before.clock.devices is None) != (after.clock.devices is None):
        problems.append(
            "clock.devices: a fork cannot change between real and virtual time, since its rounds "
            "would be timed by two clocks; leave it out, or start a new run"
        )
    if problems:
        raise ExperimentError("; ".join(problems))


def check_held_back(before: Sequence[Hook], after: Sequence[Hook]) -> None:
    """Check that the hooks of a fork leave the clients the samples that they had.

    Raises:
        ExperimentError: they take others out before the data are divided.
    """
    if _held_back(before) != _held_back(after):
        names = sorted(
            {
                type(hook).__name__
                for hook in (*before, *after)
                if _held_back([hook]) != _held_back([])
            }
        )
        raise ExperimentError(
            f"logic: a fork cannot change {' and '.join(names)}, which takes samples out before "
            "the data are divided, so that each client would have others; start a new run"
        )


def _held_back(hooks: Sequence[Hook]) -> tuple[dict[str, float], float]:
    shares = {name: asset.share for name, asset in declared_assets(hooks).items()}
    return shares, max((hook.held_out for hook in hooks), default=0.0)


def _at(tree: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree
