"""The compute layer: models, their training and evaluation, data sets and partitions.

It imports nothing of the other layers or of fedmx, and mxnet only below `engines/mxnet`. Its other
dependencies are gluoncv, numpy and threadpoolctl; scikit-learn and SciPy only to read two data
sets. Importing this package sets MXNet's environment variables, but does not import MXNet.
"""

from __future__ import annotations

from layers.compute.engines.mxnet.runtime import prepare

prepare()
