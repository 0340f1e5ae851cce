"""The command line: ``fedmx run``, ``server``, ``client``, ``resume``, ``report``, and more."""

from __future__ import annotations

from fedmx.cli.start import main

__all__ = ["main"]
