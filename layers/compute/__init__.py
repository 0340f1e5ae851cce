"""The compute layer: models, their training and evaluation, data sets and partitions.

Nothing of the other layers or of fedmx comes in, and mxnet only below `engines/mxnet`. From outside
it imports mxnet, gluoncv, numpy and threadpoolctl; scikit-learn and SciPy only to read two data
sets. Importing this package sets MXNet's environment variables, but does not import MXNet.
"""

from __future__ import annotations

from layers.compute.engines.mxnet.runtime import prepare

prepare()
