"""The initial weights of a run, read from a file.

The file holds named tensors: safetensors with the engine's names or with PyTorch's, as `fedmx
export` writes them, or ONNX. It may also be a run folder, or a checkpoint in it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedmx.errors import ExperimentError
from fedmx.run.checkpoint import METADATA_KEY, read_checkpoint
from fedmx.run.durable import RunError, sha256_of
from fedmx.run.folder import RunFolder
from layers.compute.engines.engine import Engine
from layers.compute.engines.layout import Layout
from layers.compute.errors import ComputeError

GROUPS = "@"  # before a group's name; no engine has a tensor whose name begins so

Tensors = Mapping[str, NDArray[Any]]

# First bytes of files of torch.save and pickle.
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(frozen=True)
class Start:
    """The initial weights of a run.

    Attributes:
        path: the file.
        sha256: SHA-256 of that file, in hexadecimal digits.
        weights: float32 (d,).
        buffers: float32 (b,).
        content: the weights as a safetensors file with the engine's names, for the run folder.
    """

    path: Path
    sha256: str
    weights: NDArray[Any]
    buffers: NDArray[Any]
    content: bytes

    @property
    def facts(self) -> dict[str, str]:
        """The facts for the run folder; `kept_sha256` is the checksum of the folder's own copy."""
        kept = hashlib.sha256(self.content).hexdigest()
        return {"file": str(self.path.absolute()), "sha256": self.sha256, "kept_sha256": kept}


def name_in_group(group: str, name: str) -> str:
    """Return the name of a tensor of a group's model, in a file that also has the global model."""
    return f"{GROUPS}{group}/{name}" if group else name


def read_start(path: Path, engine: Engine, group: str = "") -> Start:
    """Return the weights in a file, in the engine's order.

    Args:
        path: the file, or a run folder.
        engine: the engine with the model.
        group: the group of clients whose model it is; empty: the global model.

    Raises:
        ExperimentError: the file cannot be read, or holds another model; the text names the first
            tensor that does not fit.
    """
    try:
        file = _file_of(path)
        tensors = _of_group(_tensors(file, engine), group)
        own = _by_own_names(tensors, engine)
        weights = _joined(own, engine.layout)
        buffers = _joined(own, engine.buffers_layout)
        sha256 = sha256_of(file)
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror or error}") from None
    except (RunError, ComputeError) as error:
        raise _refusal(path, str(error)) from None
    return Start(path, sha256, weights, buffers, save(own))


def _refusal(path: Path, text: str) -> ExperimentError:
    return ExperimentError(f"compute.start: {path}: {text}")


def _file_of(path: Path) -> Path:
    """Return the file to read; of a run folder, its final weights or its newest checkpoint."""
    if not path.is_dir():
        if path.exists() and not path.is_file():
            raise ComputeError("is not a regular file; give one")
        return path
    folder = RunFolder.open(path)
    if folder.status == "done" and folder.model_path.exists():
        folder.check(folder.model_path)
        return folder.model_path
    checkpoint = folder.latest_checkpoint()
    if checkpoint is None:
        raise RunError("the run has no checkpoint yet; give a run that has trained")
    return folder.checkpoint_path(checkpoint.round)


def _tensors(file: Path, engine: Engine) -> Tensors:
    """Return the named tensors in a file.

    Raises:
        ComputeError: the format is unknown, or it holds far more than the model.
        CheckpointError: the checkpoint is damaged.
        OSError: the file cannot be read.
    """
    with file.open("rb") as start:
        head = start.read(9)
    # A safetensors file begins with the length of its header, which may look like a pickle's first
    # bytes, and then with the header's brace.
    if head.startswith(_PICKLES) and head[8:] != b"{":
        raise ComputeError(
            "is a pickle, which fedmx does not load; in PyTorch, write the model by "
            "safetensors.torch.save_file(model.state_dict(), FILE)"
        )
    try:
        with safe_open(file, framework="numpy") as opened:
            names = opened.keys()
            if METADATA_KEY in (opened.metadata() or {}):
                return _of_checkpoint(file, engine)
            _check_size({name: opened.get_slice(name).get_shape() for name in names}, engine)
            return {name: opened.get_tensor(name) for name in names}
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        if file.suffix != ".onnx":
            raise ComputeError(f"is not a safetensors or ONNX file ({error})") from None
    from layers.compute.engines.onnx_file import onnx_tensors

    # A graph also has its own constants.
    model = engine.definition.shapes
    found = onnx_tensors(file.read_bytes())
    return {name: value for name, value in found.items() if name in model}


def _of_group(tensors: Tensors, group: str) -> Tensors:
    """Return the tensors of one group's model, or of the global one, by their names in the model.

    Raises:
        ComputeError: the file has no model of this group.
    """
    if not group:
        return {name: one for name, one in tensors.items() if not name.startswith(GROUPS)}
    start = name_in_group(group, "")
    found = {name[len(start) :]: one for name, one in tensors.items() if name.startswith(start)}
    if not found:
        groups = dict.fromkeys(n[len(GROUPS) :].split("/")[0] for n in tensors if n[0] == GROUPS[0])
        has = f"it has models of {', '.join(groups)}" if groups else "it has one model for all"
        raise ComputeError(f"has no model of the group {group!r}; {has}")
    return found


def _check_size(shapes: Mapping[str, Sequence[int]], engine: Engine) -> None:
    """Check by a file's header that it does not hold far more values than the model.

    Raises:
        ComputeError: it does; the text names the largest tensor.
    """
    values = sum(math.prod(shape) for shape in engine.definition.shapes.values())
    if sum(math.prod(shape) for shape in shapes.values()) > 100 * values + (1 << 20):
        largest = max(shapes, key=lambda name: math.prod(shapes[name]))
        raise ComputeError(
            f"has a tensor {largest} of shape {tuple(shapes[largest])}, and the model has {values} "
            "numbers in all; give weights of the same model"
        )


def _of_checkpoint(file: Path, engine: Engine) -> Tensors:
    """Return the tensors of a checkpoint, which holds flat vectors."""
    state = read_checkpoint(file).state["server"]
    tensors: dict[str, NDArray[Any]] = {}
    for group, model in {"": state, **state.get("models", {})}.items():
        for what, layout in (("weights", engine.layout), ("buffers", engine.buffers_layout)):
            vector, expected = model[what], layout[-1].stop if layout else 0
            if vector.shape != (expected,):
                raise ComputeError(
                    f"the checkpoint's {what} are {vector.size} numbers, the model's {expected}; "
                    "give one of the same model"
                )
            for tensor in layout:
                values = vector[tensor.start : tensor.stop].reshape(tensor.shape)
                tensors[name_in_group(group, tensor.name)] = values
    return tensors


def _by_own_names(tensors: Tensors, engine: Engine) -> dict[str, NDArray[np.float32]]:
    """Return the model's weights and buffers by the engine's names.

    Raises:
        ComputeError: a tensor is missing, or does not fit.
    """
    named = _names_in_file(tensors, engine)
    known = {own: name for name, own in named.items()}
    own_values: dict[str, NDArray[np.float32]] = {}
    for own, shape in engine.definition.shapes.items():
        constant = engine.definition.constants.get(own)
        name = known.get(own, own)
        if name not in tensors:
            if constant is not None:
                continue  # the files of a run omit constants
            raise ComputeError(
                f"has no tensor {name} of shape {tuple(shape)}, which the model has; "
                "give weights of the same model"
            )
        found = tensors[name]
        if found.shape != tuple(shape):
            raise ComputeError(
                f"tensor {name} has the shape {found.shape}, in the model it is {tuple(shape)}; "
                "give weights of the same model"
            )
        if found.dtype.kind != "f" or not np.isfinite(found).all():
            raise ComputeError(f"tensor {name} does not hold finite floating-point numbers")
        value = np.ascontiguousarray(found, np.float32)
        if constant is None:
            own_values[own] = value
        elif not np.array_equal(value, constant):
            raise ComputeError(
                f"tensor {name} is a constant of the model, and the model's values are others; "
                "give the model the same settings"
            )
    unknown = sorted(set(tensors) - set(named))
    if unknown:
        raise ComputeError(
            f"has a tensor {unknown[0]} of shape {tensors[unknown[0]].shape}, which the model does "
            "not have; give weights of the same model"
        )
    return own_values


def _names_in_file(tensors: Tensors, engine: Engine) -> dict[str, str]:
    """Map the names in the file to the engine's; the file uses the engine's names or PyTorch's."""
    own = {name: name for name in engine.definition.shapes}
    return max(
        (own, engine.names_in_pytorch()), key=lambda names: len(names.keys() & tensors.keys())
    )


def _joined(own: Mapping[str, NDArray[np.float32]], layout: Layout) -> NDArray[np.float32]:
    """Return the tensors of a layout as one vector."""
    empty = [np.zeros(0, np.float32)]
    return np.concatenate(empty + [own[tensor.name].reshape(-1) for tensor in layout])
