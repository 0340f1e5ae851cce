"""The command line: ``fedmx run``, ``server``, ``client``, ``resume``, ``report``, and more."""

from __future__ import annotations

from fedmx.cli.main import main

__all__ = ["main"]
