"""Importing the compute layer makes MXNet importable on every Python and numpy."""

import layers.compute  # noqa: F401
