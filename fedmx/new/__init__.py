"""Small projects to begin with: an experiment, its code and a test that runs.

`templates` has the files of each kind of project. Code that runs experiments does not belong here.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import numpy as np

from fedmx.errors import FedmxError
from fedmx.experiment.model import NAME_LENGTH, NAME_PATTERN
from fedmx.experiment.reader import parse_value

_ENDING = ".template"  # so that no tool takes a template for code of fedmx
_EXPERIMENT = "experiment.yaml"
_COLUMNS = ("sepal_length", "sepal_width", "petal_length", "petal_width", "species")
_WITH_CODE = ("hook", "model", "selector", "aggregator")
_IMAGES_PER_LABEL = 30
_MAX_PIXEL = 16  # of scikit-learn's digits


def _write_flowers(folder: Path) -> None:
    """Write `flowers.csv`: 150 flowers (Fisher's iris), four lengths in cm and the species."""
    from sklearn.datasets import load_iris

    flowers = load_iris()
    with (folder / "flowers.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COLUMNS)
        for lengths, label in zip(flowers.data, flowers.target, strict=True):
            table.writerow([*(float(one) for one in lengths), flowers.target_names[label]])


def _write_images(folder: Path) -> None:
    """Write `images/LABEL/NUMBER.png`: 8 x 8 images of handwritten digits, 30 of each."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for label in range(10):
        to = folder / "images" / str(label)
        to.mkdir(parents=True)
        for number, index in enumerate(np.flatnonzero(digits.target == label)[:_IMAGES_PER_LABEL]):
            pixels = np.rint(digits.images[index] * (255 / _MAX_PIXEL)).astype(np.uint8)
            Image.fromarray(pixels).save(to / f"{number:02}.png")


@dataclass(frozen=True)
class Kind:
    """A kind of project.

    Attributes:
        templates: the folders of `templates/` that it is made of.
        command: the command that runs it, in its folder.
        samples: writes its sample data into a folder; None: it has none.
    """

    templates: tuple[str, ...]
    command: str
    samples: Callable[[Path], None] | None = None


def _simulated(name: str, options: str, samples: Callable[[Path], None] | None = None) -> Kind:
    return Kind((name, "simulated", "every"), f"fedmx run experiment.yaml{options}", samples)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        **{name: _simulated(name, " --own-modules") for name in _WITH_CODE},
        "csv": _simulated("csv", "", _write_flowers),
        "images": _simulated("images", "", _write_images),
        "deploy": Kind(("deploy", "every"), "./local.sh"),
    }
)
"""The kinds of projects by name."""


def write_project(folder: Path, kind: str) -> list[str]:
    """Write a project, and return the names of its files and folders, folders with a slash.

    Args:
        folder: the new folder; its name becomes the name of the experiment.
        kind: one of `KINDS`.

    Raises:
        FedmxError: the name cannot be an experiment's, the folder is not empty, or it cannot be
            written.
    """
    name = folder.name
    if not re.fullmatch(NAME_PATTERN, name) or len(name) > NAME_LENGTH:
        raise FedmxError(
            f"{folder}: a project is named by at most {NAME_LENGTH} letters, digits, '_', '-' "
            "and '.'; give another name"
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise FedmxError(f"{folder}: a file has this name; give another name")
    if not folder.parent.is_dir():
        raise FedmxError(
            f"{folder}: there is no folder {folder.parent}; make it, or give another name"
        )
    temporary = folder.with_name(f".new-{os.getpid()}-{name}")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise FedmxError(f"{folder}: the folder is not empty; give another name")
        temporary.mkdir()
        _write_templates(temporary, kind, name)
        samples = KINDS[kind].samples
        if samples is not None:
            samples(temporary)
        os.rename(temporary, folder)
    except OSError as error:
        raise FedmxError(f"{folder}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(f"{one.name}/" if one.is_dir() else one.name for one in folder.iterdir())


def _write_templates(to: Path, kind: str, name: str) -> None:
    templates = resources.files("fedmx.new") / "templates"
    for place in KINDS[kind].templates:
        for template in (templates / place).iterdir():
            file = to / template.name.removesuffix(_ENDING)
            text = template.read_text(encoding="utf-8")
            if file.name == _EXPERIMENT:
                text = _experiment(text, kind, name)
            file.write_text(text, encoding="utf-8")
            if file.suffix == ".sh":
                file.chmod(0o755)


def _experiment(text: str, kind: str, name: str) -> str:
    """Return an experiment file with the project's name, and a first line that says how to run."""
    lines = text.splitlines()
    while lines[0].startswith("#"):
        del lines[0]
    lines[0] = f"name: {name if parse_value(name, '') == name else json.dumps(name)}"
    return "\n".join([f"# To run it, in this folder:  {KINDS[kind].command}", *lines, ""])
