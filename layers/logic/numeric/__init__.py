"""Arithmetic that several algorithms share: on vectors, distributions and knapsacks.

What knows a client, a round or a hook does not belong here.
"""
