"""The package onnx, which an extra installs, and the weights in a file of ONNX."""

from __future__ import annotations

import numpy as np

from layers.compute.errors import ComputeError
from layers.extras import install

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    raise ComputeError(
        f"ONNX needs the package onnx, which cannot be imported ({error}); " + install("export")
    ) from error

__all__ = ["TensorProto", "helper", "numpy_helper", "onnx", "onnx_tensors"]


def onnx_tensors(content: bytes) -> dict[str, np.ndarray]:
    """Return the named weights in an ONNX file.

    Raises:
        ComputeError: the file is not ONNX.
    """
    try:
        tensors = onnx.load_from_string(content).graph.initializer
        beside = [t.name for t in tensors if t.data_location == TensorProto.EXTERNAL]
        found = {} if beside else {t.name: numpy_helper.to_array(t) for t in tensors}
    except Exception as error:  # errors of protobuf and onnx have no common base class
        raise ComputeError("it is not an ONNX file") from error
    if beside:
        raise ComputeError(f"its weights, such as {beside[0]}, are in a file beside it")
    if not found:
        raise ComputeError("it is not an ONNX file with weights")
    return found
