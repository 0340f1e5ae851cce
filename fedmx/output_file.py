"""Files that a user asked for: none replaces a file that fedmx did not write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedmx.errors import FedmxError

# What fedmx writes into its files, and how much of a file is read to find it; None: all.
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


def check_output(path: Path, what: str, endings: Sequence[str]) -> None:
    """Check that a file may be written; nothing is written here.

    Args:
        path: the file.
        what: what is written into it, for messages: "a report is HTML".
        endings: how such a file's name ends; the first is that to suggest.

    Raises:
        FedmxError: it is a folder, its ending is that of another format, or there is a file that
            fedmx did not write.
    """
    if path.is_dir() or not path.name:  # an empty name is that of the working directory
        raise FedmxError(f"{path}: is a folder; name a file in it, as {path / f'NAME{endings[0]}'}")
    if path.suffix.lower() not in endings:
        example = path.with_suffix(endings[0]).name
        raise FedmxError(
            f"{path}: {what}; give a file that ends in {' or '.join(endings)}, such as {example}"
        )
    if path.exists() and not _is_ours(path):
        raise FedmxError(
            f"{path}: fedmx did not write this file, and does not replace it; give another name, "
            "or move the file away"
        )


def _is_ours(path: Path) -> bool:
    """Return whether fedmx wrote a file, or nothing is lost with it."""
    mark, length = _MARKS.get(path.suffix.lower(), (b"", 0))
    try:
        with path.open("rb") as file:
            content = file.read() if length is None else file.read(length)
    except OSError as error:
        raise FedmxError(f"{path}: cannot read it ({error.strerror})") from None
    return not content or (bool(mark) and mark in content)
