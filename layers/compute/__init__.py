"""The model: parameters, training, evaluation, data; mxnet lives here and nowhere else."""

from __future__ import annotations
