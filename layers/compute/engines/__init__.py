"""The engines that train and evaluate a model, one package each.

They know no data sets and no partitions.
"""
