"""The model of a run folder in the formats of other programs.

No rounds run here. The compute layer defines the formats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.start_file import read_start
from fedmx.components.catalogue import read_catalogue
from fedmx.components.component import Component
from fedmx.components.engines import CPU, FLOAT32, MXNET, TORCH
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.output_file import check_output
from fedmx.run import RunError, RunFolder
from fedmx.run.folder import kept_start
from fedmx.server.personal import PersonalModels
from fedmx.version import __version__
from layers.compute.data.targets import Targets
from layers.compute.engines.engine import Engine
from layers.compute.errors import ComputeError
from layers.logic import ClientLedger, ServerState


@dataclass(frozen=True)
class TrainedModel:
    """The model of a run folder.

    Attributes:
        run: the run folder's name.
        name: the model's name in the experiment, as a valid Python name.
        round: the round of the weights.
        last: whether the run is done, and these are its last weights.
        own_module: whether it is the user's own module of PyTorch.
        graph: returns the model on MXNet without its weights, which has the model's graph; it
            raises a ComputeError if the model is not on MXNet.
        values: the value of each parameter, buffer and constant by its structural name; of a module
            of PyTorch, all of its `state_dict`.
        notes: texts about the model for the metadata of a file.
    """

    run: str
    name: str
    round: int
    last: bool
    own_module: bool
    graph: Callable[[], Any]
    values: Mapping[str, NDArray[Any]]
    notes: Mapping[str, str]

    @classmethod
    def of(
        cls,
        folder: RunFolder,
        modules: Collection[str] | None = (),
        client: int | None = None,
        group: str = "",
    ) -> TrainedModel:
        """Return the last model of a run folder, or the model of its newest checkpoint.

        Args:
            folder: the run folder.
            modules: the modules whose code its experiment may name; None: all.
            client: the client of a simulation whose personal model it is, after the round of the
                newest checkpoint; None: the global model.
            group: the group of clients whose model it is; empty: the global model.

        Raises:
            RunError: the run has trained nothing yet, its folder is incomplete, or it has no
                memory of the client.
            ExperimentError: the model cannot be built here.
        """
        experiment = folder.experiment(modules=modules)
        if client is None:
            assembly = assembly_of(folder, experiment)
            round = load_newest(folder, assembly.engine, group)
        else:
            assembly = Assembly(experiment, start_file=kept_start(folder))
            round = _load_personal(folder, assembly, client)
        engine = assembly.engine
        model = experiment.compute.model
        notes = {
            "model": model.name,
            "settings": json.dumps(model.settings, sort_keys=True),
            "input": _input_text(experiment, engine),
            "output": _output_text(engine),
            "run": folder.name,
            "round": str(round),
            "fedmx": __version__,
            **({} if client is None else {"client": str(client)}),
            **({"group": group} if group else {}),
        }
        name = re.sub(r"\W", "_", model.name.rpartition(":")[2], flags=re.ASCII)
        name = f"model_{name}" if name[:1].isdigit() else name
        last = folder.status == "done"
        own_module = engine.name == TORCH and not _is_named(model)
        graph = partial(_graph, folder, experiment, assembly)
        return cls(folder.name, name, round, last, own_module, graph, engine.values(), notes)


def load_newest(folder: RunFolder, engine: Engine, group: str) -> int:
    """Load the newest weights into the engine; return their round."""
    path, round = _weights_of(folder)
    try:
        weights = read_start(path, engine, group)
    except ExperimentError as error:
        raise RunError(str(error).removeprefix("compute.start: ")) from None
    engine.load(weights.weights, weights.buffers)
    return round


def _load_personal(folder: RunFolder, assembly: Assembly, client: int) -> int:
    """Load the personal model of a client into the engine; return its round."""
    clients = assembly.experiment.clients
    if client >= clients:
        raise RunError(f"{folder.path}: there is no client {client}; there are 0 to {clients - 1}")
    checkpoint = folder.latest_checkpoint()
    if checkpoint is None:
        raise RunError(f"{folder.path}: the run has no checkpoint yet, so there is no model in it")
    ledgers = checkpoint.state["clients"].get("ledgers")
    if ledgers is None:
        raise RunError(
            f"{folder.path}: the run was deployed, and client {client} has its memory itself; the "
            "models of clients are exported from simulations"
        )
    state = ServerState.of_tree(checkpoint.state["server"])
    ledger = ClientLedger.of_tree(ledgers[client]) if client in ledgers else ClientLedger()
    memory = ledger.accepted(client, state)
    PersonalModels(assembly, lambda *_: memory).load(client, state, memory)
    return checkpoint.round


def _weights_of(folder: RunFolder) -> tuple[Path, int]:
    """Return the file of the newest weights, and their round."""
    records = folder.rounds()
    # A damaged line may be the last round.
    if folder.status == "done" and folder.model_path.exists() and records and not folder.damage:
        folder.check(folder.model_path)
        return folder.model_path, int(records[-1]["round"])
    checkpoint = folder.latest_checkpoint()
    if checkpoint is None:
        raise RunError(f"{folder.path}: the run has no checkpoint yet, so there is no model in it")
    return folder.checkpoint_path(checkpoint.round), checkpoint.round


def assembly_of(folder: RunFolder, experiment: Experiment) -> Assembly:
    """Return the assembly of a run's experiment, without its data."""
    if missing := {"shape", "targets"} - folder.facts.keys():
        raise RunError(f"{folder.path}: run.json does not have {min(missing)}; is it of this run?")
    shape, targets = folder.facts["shape"], Targets(**folder.facts["targets"])
    words: tuple[str, ...] = ()
    if folder.words_path.exists():
        folder.check(folder.words_path)
        try:
            words = tuple(json.loads(folder.words_path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{folder.words_path}: cannot read it ({error})") from None
    return Assembly(experiment, shape=tuple(shape), targets=targets, told_words=words)


def _input_text(experiment: Experiment, engine: Engine) -> str:
    """Return a description of the model's input."""
    whole = f"(n, {', '.join(map(str, engine.example_shape))})"
    normalise = experiment.compute.normalise
    if normalise is None:
        kind = "int64 tokens" if engine.takes_tokens else "float32"
        return f"{kind} {whole}, as the data set {experiment.compute.data.name} has them"
    value = "x"
    if normalise.scale != 1:
        value = f"x / {normalise.scale:g}"
    channels = isinstance(normalise.mean, tuple) or isinstance(normalise.std, tuple)
    if normalise.mean != 0:
        value = f"{value} - {_numbers(normalise.mean)}"
    if normalise.std != 1:
        value = value if value == "x" else f"({value})"
        value = f"{value} / {_numbers(normalise.std)}"
    per = ", by channel" if channels else ""
    return (
        f"float32 {whole}: {value}{per}, where x are the values that the data set "
        f"{experiment.compute.data.name} stores"
    )


def _numbers(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(f'{one:g}' for one in value)})"
    return f"{value:g}"


def _output_text(engine: Engine) -> str:
    shape = ", ".join(["n", *map(str, engine.definition.outputs)])
    return f"({shape}): {engine.own_loss.meaning}"


def flat(values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return contiguous tensors for a safetensors file."""
    return {name: np.ascontiguousarray(values[name]).reshape(values[name].shape) for name in values}


@dataclass(frozen=True)
class Exported:
    """A model in one format.

    Attributes:
        files: the content of each file by path; the first is the model.
        source: the source code of the module; empty: none.
    """

    files: Mapping[Path, bytes]
    source: str = ""


def _is_named(model: Component) -> bool:
    """Return whether a model is one of fedmx, which is the same on every engine."""
    return model.object is None and model.name in read_catalogue()["models"]


def _graph(folder: RunFolder, experiment: Experiment, assembly: Assembly) -> Any:
    """Return the definition of a run's model on MXNet, where a named model is the same.

    Raises:
        ComputeError: the model is the user's own, of another engine, or MXNet is not installed.
    """
    compute = experiment.compute
    if compute.engine == MXNET:
        return assembly.engine.definition
    if not _is_named(compute.model):
        raise ComputeError(
            f"the model {compute.model.name} is on the engine {compute.engine}, and only models on "
            "MXNet have a graph to export; export its state_dict with --to torch, and in PyTorch "
            "use torch.onnx.export"
        )
    if find_spec("mxnet") is None:
        raise ComputeError(
            "MXNet writes this format, and the package mxnet is not installed; export safetensors"
        )
    usual = {"engine": MXNET, "device": CPU, "precision": FLOAT32}
    on_mxnet = experiment.with_overrides([f"compute.{key}={one}" for key, one in usual.items()])
    return assembly_of(folder, on_mxnet).engine.definition


def as_onnx(model: TrainedModel, path: Path) -> Exported:
    """Return a model as an ONNX file.

    Raises:
        ComputeError: ONNX or MXNet's exporter does not support the model.
    """
    from layers.compute.engines.mxnet.to_onnx import onnx_model

    return Exported({path: onnx_model(model.graph(), model.values, model.notes)})


def as_safetensors(model: TrainedModel, path: Path) -> Exported:
    """Return a model's tensors as a safetensors file, with the engine's names."""
    return Exported({path: save(flat(model.values), {"format": "np", **model.notes})})


def as_torch(model: TrainedModel, path: Path) -> Exported:
    """Return a model as a PyTorch state_dict, in a safetensors file, and its module's source.

    The source is beside the state_dict, in a file of the same name that ends in .py. The user's own
    module of PyTorch has its source already.

    Raises:
        ComputeError: it has an operator without a translation.
        FedmxError: the source would replace a user's file.
    """
    if model.own_module:
        return Exported({path: save(flat(model.values), {"format": "pt", **model.notes})})
    from layers.compute.engines.mxnet.to_torch import torch_state

    beside = path.with_suffix(".py")
    check_output(beside, "the module is Python", (".py",))
    module, state = torch_state(model.graph(), model.values)
    source = f'"""{_torch_docstring(model, path)}"""\n\n{module.source}'
    return Exported(
        {
            path: save(flat(state), {"format": "pt", **model.notes}),
            beside: source.encode(),
        },
        source,
    )


FORMATS: dict[str, tuple[str, Callable[[TrainedModel, Path], Exported]]] = {
    "onnx": (".onnx", as_onnx),
    "torch": ("_torch.safetensors", as_torch),
    "safetensors": (".safetensors", as_safetensors),
}
"""The file suffix of each format, and its function."""

_BY_FEDMX = ", written by fedmx export."


def _torch_docstring(model: TrainedModel, path: Path) -> str:
    """Return how to load the state_dict, and the model's input and output."""
    lines = (
        f"Model {model.name} of the run {model.run} after round {model.round}{_BY_FEDMX}",
        "",
        "    from safetensors.torch import load_file",
        "",
        "    model = Model()",
        f"    model.load_state_dict(load_file({path.name!r}))",
        "    model.eval()",
        "",
        f"Input: {model.notes['input']}.",
        f"Output: {model.notes['output']}.",
        "",
    )
    return "\n".join(line.replace("\\", "/").replace('"""', "'''") for line in lines)
