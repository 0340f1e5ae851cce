"""``python -m fedmx``: the command line."""

from __future__ import annotations

from fedmx.cli.start import main

main()
