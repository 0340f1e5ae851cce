"""Data: what a data set is, how its files are found, and how its samples become inputs.

The data sets and the partitions among clients have packages of their own. Nothing here imports a
model or mxnet.
"""
