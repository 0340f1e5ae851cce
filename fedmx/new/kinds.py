"""The kinds of projects, and which templates and sample files each is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from fedmx.new.samples import write_flowers, write_images


@dataclass(frozen=True)
class Kind:
    """A kind of project.

    Attributes:
        templates: the folders of `templates/` whose files it has.
        command: what runs it, in its folder.
        samples: writes sample data into a folder; None: it has none.
    """

    templates: tuple[str, ...]
    command: str = "fedmx run experiment.yaml --own-modules"
    samples: Callable[[Path], None] | None = None


def _simulated(name: str, samples: Callable[[Path], None] | None = None) -> Kind:
    return Kind((name, "simulated", "every"), samples=samples)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "hook": _simulated("hook"),
        "model": _simulated("model"),
        "selector": _simulated("selector"),
        "aggregator": _simulated("aggregator"),
        "csv": _simulated("csv", write_flowers),
        "images": _simulated("images", write_images),
        "deploy": Kind(("deploy", "every"), "./local.sh"),
    }
)
