"""The compute floor of one end: an engine, and the samples at that end."""

from __future__ import annotations

from dataclasses import dataclass

from layers.compute.data.samples import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine


@dataclass(frozen=True)
class Compute:
    """An engine, and samples: the test set on a server, the client's own samples on a client."""

    engine: MXNetEngine
    samples: Samples
