"""Callbacks that fedmx has: early stopping, the best model, a progress bar, two trackers.

Each is one file that needs nothing but what any callback is told. No part of a round comes in.
"""
