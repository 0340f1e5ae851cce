"""fedmx: federated learning for MXNet/Gluon, from an idea to machines connected over TLS.

``__init__.pyi`` lists the public names with their modules. Each is imported when it is first used,
so that ``fedmx --help`` does not wait for MXNet.
"""

from __future__ import annotations

import importlib

from fedmx.layers_check import check_layers
from fedmx.lazy import importer, names_of

if check_layers():
    # From here on `import mxnet` works on every Python and numpy that fedmx runs on.
    importlib.import_module("layers.compute")

_MODULES = names_of(__file__)

__all__ = sorted(_MODULES)
__getattr__ = importer(_MODULES, globals())


def __dir__() -> list[str]:
    """Return the public names, which a notebook completes."""
    return list(__all__)
