"""Sweeps: one experiment with varied settings, each cell with the same seeds, and what they say.

The runs are processes of `fedmx run`. Nothing here trains, and nothing here prints.
"""
