"""Sweeps: one experiment with varied settings, and statistics over the same seeds.

The runs are processes of `fedmx run`. Nothing here trains or prints.
"""
