"""A command as it can be typed into a shell."""

from __future__ import annotations

import os
import shlex


def shell_line(*words: str | os.PathLike[str]) -> str:
    """Return a command of these words, quoted where the shell needs it."""
    return shlex.join(os.fspath(word) for word in words)
