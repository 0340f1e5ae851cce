"""Vectors of a round that wait on disk, and are read slice by slice.

What a vector means does not belong here: this room knows numbers and a file.
"""
