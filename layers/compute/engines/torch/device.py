"""The device on which PyTorch's operators run: the only place where values move to it and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from layers.compute.engines.layout import Layout
from layers.compute.errors import ComputeError

HOST = torch.device("cpu")


def device_of(name: str) -> torch.device:
    """Return a device by PyTorch's name.

    Raises:
        ComputeError: it is a GPU, and PyTorch finds none.
    """
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ComputeError(
            f"compute.device: PyTorch {torch.__version__} finds no {name} device here; "
            "use device: cpu, or a machine and a build of PyTorch with CUDA"
        )
    return device


def name_of(device: torch.device) -> str:
    """Return the name of a device with that of its hardware, such as "cuda (NVIDIA H100)"."""
    if device.type != "cuda":
        return str(device.type)
    hardware: str = torch.cuda.get_device_name(device)
    return f"{device.type} ({hardware})"


def free_bytes(device: torch.device) -> int | None:
    """Return the memory that is free on a device; None: the system does not say."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + unused)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return next((int(kib) << 10 for kib in available), None)


class OnDevice:
    """An array of the host and its tensor, which is a copy of it on any device but the host.

    Attributes:
        tensor: the tensor.
    """

    def __init__(self, array: np.ndarray, device: torch.device):
        self._host = torch.from_numpy(array)
        self.tensor = self._host if device == HOST else self._host.to(device, copy=True)

    def send(self) -> None:
        """Copy the array to the tensor."""
        if self.tensor is not self._host:
            self.tensor.copy_(self._host)

    def fetch(self) -> None:
        """Copy the tensor to the array."""
        if self.tensor is not self._host:
            self._host.copy_(self.tensor)

    def views(self, layout: Layout) -> dict[str, torch.Tensor]:
        """Return a view of each tensor in a vector, in its shape, by its name."""
        return {one.name: self.tensor[one.start : one.stop].view(one.shape) for one in layout}
