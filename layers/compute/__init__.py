"""The model: parameters, training, evaluation, data; mxnet lives here and nowhere else.

Importing this package sets MXNet's environment and does not import MXNet: only the modules that
need it do.
"""

from __future__ import annotations

from layers.compute.engines.mxnet.runtime import prepare

prepare()
