"""Data: what a data set is, how its files are found, and how its samples become inputs.

The data sets, file formats and divisions among clients have rooms of their own inside. No model and
no mxnet comes in.
"""
