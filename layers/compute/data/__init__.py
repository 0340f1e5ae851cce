"""Samples: downloads, data sets, and how they are divided among clients.

No model and no mxnet here.
"""
