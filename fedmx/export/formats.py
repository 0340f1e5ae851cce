"""The files of a trained model, one function a format; each is written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.numpy import save

from fedmx.export.module_name import check_module_name
from fedmx.export.trained_model import TrainedModel, flat
from fedmx.output_file import check_output


@dataclass(frozen=True)
class Exported:
    """A model in one format.

    Attributes:
        files: the content of each file, by path; the first is the model.
        source: source code that a user needs; empty: none.
    """

    files: Mapping[Path, bytes]
    source: str = ""


def as_onnx(model: TrainedModel, path: Path) -> Exported:
    """Return a model as an ONNX file.

    Raises:
        ComputeError: it has something that ONNX or MXNet's exporter does not have.
    """
    from layers.compute.engines.mxnet.to_onnx import onnx_model

    return Exported({path: onnx_model(model.definition, model.values, model.notes)})


def as_safetensors(model: TrainedModel, path: Path) -> Exported:
    """Return a model's tensors as a safetensors file, with the engine's names."""
    return Exported({path: save(flat(model.values), {"format": "np", **model.notes})})


def as_torch(model: TrainedModel, path: Path) -> Exported:
    """Return a model as a PyTorch state_dict, in a safetensors file, and its module's source.

    The source is beside the state_dict, in a file of the same name that ends in .py.

    Raises:
        ComputeError: it has an operator without a translation.
        FedmxError: the source would replace a user's file, or could not be imported.
    """
    from layers.compute.engines.mxnet.to_torch import torch_state

    beside = path.with_suffix(".py")
    check_module_name(path)
    check_output(beside, "the module is Python", (".py",))
    module, state = torch_state(model.definition, model.values)
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
"""What each format adds to the model's name for a file, and its function."""

_BY_FEDMX = ", written by fedmx export."


def _torch_docstring(model: TrainedModel, path: Path) -> str:
    """Return how to load the state_dict, and what the model takes and gives."""
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
