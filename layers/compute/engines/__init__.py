"""The engines that train a model, one folder each, and what an end computes with.

Data sets do not belong here.
"""
