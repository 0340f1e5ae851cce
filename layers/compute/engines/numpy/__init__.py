"""The engine on numpy alone: it runs wherever numpy does, and its code is short.

It has the models of `layers.compute.engines.architectures` and no others. Nothing else than numpy
belongs here.
"""
