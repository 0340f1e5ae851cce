"""The values and interfaces that all parts of the logic layer use.

Algorithms and numerics do not belong here.
"""
