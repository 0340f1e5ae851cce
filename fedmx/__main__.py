"""``python -m fedmx``: the command line."""

from __future__ import annotations

from fedmx.cli import main

main()
