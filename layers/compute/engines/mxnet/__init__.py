"""The engine on MXNet: a Gluon model on one flat vector.

Only this package imports mxnet; it knows no rounds, clients and data sets. Importing it makes MXNet
and gluoncv loadable on newer versions of Python and numpy.
"""

from __future__ import annotations

from layers.compute.engines.mxnet.loading import install

install()
