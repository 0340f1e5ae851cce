"""The engine on MXNet: a Gluon model on one flat vector.

This is the only package that imports mxnet; no round, no client and no data set comes in.
"""
