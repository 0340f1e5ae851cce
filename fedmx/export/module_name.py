"""The name of the module beside a state_dict: one that can be imported and hides no other."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

from fedmx.errors import FedmxError

# What the module and its user import, and what those import: Python looks beside a script first.
_TAKEN = {"torch", "safetensors", "numpy", "mxnet", "fedmx", "layers", *sys.stdlib_module_names}


def check_module_name(path: Path) -> None:
    """Check that Python can import the module beside a file, whose name it has.

    Raises:
        FedmxError: it cannot, or other modules could no longer be imported.
    """
    stem = path.stem
    if not stem.isidentifier():
        why = "and cannot be imported by that name"
        other = re.sub(r"\W", "_", stem)
        other = other if other.isidentifier() else f"model_{other}"
    elif keyword.iskeyword(stem):
        why, other = f"and {stem} is a word of Python's", f"{stem}_model"
    elif stem in _TAKEN:
        why, other = f"which would hide the module {stem}", f"{stem}_model"
    else:
        return
    raise FedmxError(
        f"{path}: the module beside it would be {stem}.py, {why}; give another name, such as "
        f"{other}{path.suffix}"
    )
