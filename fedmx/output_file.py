"""Names of output files: none replaces a file that fedmx did not write."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fedmx.errors import FedmxError

# The mark in fedmx's files by ending, and how many bytes to read to find it; None: all.
_MARKS: dict[str, tuple[bytes, int | None]] = {
    ".html": (b"Written by fedmx.", None),
    ".htm": (b"Written by fedmx.", None),
    ".onnx": (b"fedmx", 200),  # the name of the producer
    ".safetensors": (b'"fedmx":', 100_000),  # in the header
    ".pdf": (b"/Creator (fedmx)", None),
    ".png": (b"tEXtSoftware\0fedmx", 1000),
    ".svg": (b"<dc:title>fedmx<", 2000),  # its creator
    ".csv": (b"fedmx_group,seed,", 20),
    ".tex": (b"% Written by fedmx.", 100),
    ".json": (b'"model_sha256":', 1000),  # of the best model
    ".fedmx": (b"manifest.json", 60),  # the name of a pack's first member
    ".py": (b", written by fedmx export.", 1000),
}

# Modules that the module and its user import: Python looks beside a script first.
_TAKEN = {"torch", "safetensors", "numpy", "mxnet", "fedmx", "layers", *sys.stdlib_module_names}


def check_output(path: Path, what: str, endings: Sequence[str]) -> None:
    """Check that a file may be written, without writing it.

    Args:
        path: the file.
        what: its format in messages, as "a report is HTML".
        endings: the possible endings; messages suggest the first.

    Raises:
        FedmxError: it is a folder, it has another ending, or it exists and is not fedmx's.
    """
    if path.is_dir() or not path.name:  # the working directory has an empty name
        raise FedmxError(f"{path}: is a folder; name a file in it, as {path / f'NAME{endings[0]}'}")
    if path.suffix.lower() not in endings:
        example = path.with_suffix(endings[0]).name
        raise FedmxError(
            f"{path}: {what}; give a file that ends in {' or '.join(endings)}, such as {example}"
        )
    if path.exists() and not (path.is_file() and _is_ours(path)):
        raise FedmxError(
            f"{path}: fedmx did not write this file, and does not replace it; give another name, "
            "or move the file away"
        )


def check_module_name(path: Path) -> None:
    """Check that Python can import the module with the name of this file.

    Raises:
        FedmxError: it cannot, or the module would hide another one.
    """
    stem = path.stem
    if not stem.isidentifier():
        why = "and cannot be imported by that name"
        other = re.sub(r"\W", "_", stem)
        other = other if other.isidentifier() else f"model_{other}"
    elif keyword.iskeyword(stem):
        why, other = f"and {stem} is a keyword of Python", f"{stem}_model"
    elif stem in _TAKEN:
        why, other = f"which would hide the module {stem}", f"{stem}_model"
    else:
        return
    raise FedmxError(
        f"{path}: the module beside it would be {stem}.py, {why}; give another name, such as "
        f"{other}{path.suffix}"
    )


def _is_ours(path: Path) -> bool:
    """Return whether fedmx wrote a file, or it is empty."""
    mark, length = _MARKS.get(path.suffix.lower(), (b"", 0))
    try:
        with path.open("rb") as file:
            content = file.read() if length is None else file.read(length)
    except OSError as error:
        raise FedmxError(f"{path}: cannot read it ({error.strerror})") from None
    return not content or (bool(mark) and mark in content)
