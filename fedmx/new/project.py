"""A project is written: templates under the names of their files, with the project's name."""

from __future__ import annotations

import json
import os
import re
import shutil
from importlib import resources
from pathlib import Path

from fedmx.errors import FedmxError
from fedmx.experiment.model import NAME_LENGTH, NAME_PATTERN
from fedmx.experiment.reader import parse_value
from fedmx.new.kinds import KINDS

_ENDING = ".template"  # so that no tool takes a template for code of fedmx
_EXPERIMENT = "experiment.yaml"


def write_project(folder: Path, kind: str) -> list[str]:
    """Write a project, and return the names of the files and folders in it, folders with a slash.

    Args:
        folder: where to; its last part is the name of the experiment, too.
        kind: one of `KINDS`.

    Raises:
        FedmxError: the name cannot be an experiment's, the folder has something in it, or it
            cannot be written.
    """
    name = folder.name
    if not re.fullmatch(NAME_PATTERN, name) or len(name) > NAME_LENGTH:
        raise FedmxError(
            f"{folder}: the name of a project has letters, digits, '_', '-' and '.' alone, "
            f"and at most {NAME_LENGTH} of them; give another name"
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise FedmxError(f"{folder}: there is a file of this name; give another name")
    if not folder.parent.is_dir():
        raise FedmxError(
            f"{folder}: there is no folder {folder.parent}; make it, or give another name"
        )
    temporary = folder.with_name(f".new-{os.getpid()}-{name}")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise FedmxError(f"{folder}: there is something in this folder; give another name")
        temporary.mkdir()
        _write_templates(temporary, kind, name)
        samples = KINDS[kind].samples
        if samples is not None:
            samples(temporary)
        os.rename(temporary, folder)
    except OSError as error:
        raise FedmxError(f"{folder}: cannot write it ({error.strerror})") from None
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
