"""The command line: ``fedmx run``, ``server``, ``client``, ``resume``, ``report`` and more.

Nothing outside this folder imports it.
"""

from __future__ import annotations

from fedmx.cli.start import main

__all__ = ["main"]
