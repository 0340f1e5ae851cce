"""The built-in parts as Python objects: ``krum`` in an experiment file is `Krum` here.

``parts.pyi`` lists them; ``make generate`` writes it. Each is imported when
it is first used.
"""

from __future__ import annotations

from fedmx.lazy import importer, names_of

_NAMES = names_of(__file__)

__all__ = sorted(_NAMES)
__getattr__ = importer(_NAMES, globals())


def __dir__() -> list[str]:
    """Return the names of the parts, which a notebook completes."""
    return list(__all__)
