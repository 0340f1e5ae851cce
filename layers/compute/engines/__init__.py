"""The engines that train and evaluate a model, one folder each, and the compute floor of an end.

No data set and no partition comes in.
"""
