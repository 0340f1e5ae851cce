"""Data: data sets, their files, and the way from samples to inputs.

The data sets and the partitions among clients have packages of their own. Nothing here imports a
model or mxnet.
"""
