"""The labels of each client's samples, by the experiment's partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.experiment.reader import parse_text


class NoLabels(FedmxError):
    """The data or their partition are not available; the text says why."""


def label_shares(experiment_yaml: str, clients: Sequence[int]) -> np.ndarray:
    """Return the share of each label in a client's samples.

    Nothing is downloaded, and no module that the experiment names is imported, because a report may
    be about another user's run.

    Args:
        experiment_yaml: the experiment.
        clients: the ids of the clients.

    Returns:
        Float64 (clients, classes); a row adds up to 1, or to 0 for a client without samples.

    Raises:
        NoLabels: the data are not on this machine, are the user's own, or have no such client.
    """
    # Not at the top: only this function needs the compute layer, and with it mxnet.
    from fedmx.assembly.assembly import Assembly
    from layers.compute.data.datasets import Files
    from layers.compute.errors import ComputeError

    try:
        tree, _ = parse_text(experiment_yaml, "experiment.yaml")
        compute = {key: tree["compute"][key] for key in ("data", "partition")}
        # Other keys do not change the data, and may name what is not on this machine.
        kept = {"rounds": 1, "compute": {"model": "2nn", **compute}, "logic": _hooks(tree)}
        kept |= {key: tree[key] for key in ("seed", "clients")}
        experiment = Experiment.parse(yaml.safe_dump(kept), "experiment.yaml", modules=())
        assembly = Assembly(experiment, Files(download=False))
        classes, number = assembly.data.dataset.classes, len(assembly.sizes())
    except (KeyError, TypeError, yaml.YAMLError):
        raise NoLabels("the experiment does not name its data") from None
    except (FedmxError, ComputeError, OSError) as error:
        raise NoLabels(str(error).partition("\n")[0]) from None
    if not all(0 <= client < number for client in clients):
        raise NoLabels(f"the partition has {number} clients, and the run had others")
    counts = [np.bincount(assembly.labels_of(client), minlength=classes) for client in clients]
    counted = np.array(counts, dtype=np.float64).reshape(len(clients), classes)
    shares: np.ndarray = counted / np.maximum(counted.sum(axis=1, keepdims=True), 1)
    return shares


def _hooks(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the logic section without user code; its hooks can hold samples back."""
    logic = tree.get("logic") or {}
    hooks = [hook for hook in logic.get("hooks") or () if not _is_user_code(hook)]
    preset = logic.get("preset")
    return {
        "hooks": hooks,
        **({} if preset is None or _is_user_code(preset) else {"preset": preset}),
    }


def _is_user_code(component: Any) -> bool:
    name = component["name"] if isinstance(component, Mapping) else component
    return ":" in str(name)
