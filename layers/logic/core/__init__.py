"""The values and interfaces that every part of the logic layer is written with.

No algorithm and no numerics here.
"""
