"""Arithmetic that several algorithms share: on vectors, label distributions and knapsacks.

Code that knows clients, rounds or hooks does not belong here.
"""
