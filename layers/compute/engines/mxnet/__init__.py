"""The engine on MXNet: a Gluon model on one flat vector.

This is the only package that imports mxnet; no round, no client and no data set comes in. Importing
it lets MXNet and gluoncv load on the newer versions of Python and numpy.
"""

from __future__ import annotations

from layers.compute.engines.mxnet.loading import install

install()
