"""The executors that an experiment can name, besides ``serial``, one in each module.

To add one, define its `EXECUTOR` in a module with its name. Nothing here imports numpy or a worker
at the top of a module, since commands that only explain keys read these modules too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Executor:
    """An executor on workers.

    Attributes:
        takes: the type of its key in the section ``executor``; a `Section` has keys of its own.
        default: the value of the key if a file gives the name of the executor alone.
        usage: what the option ``--executor`` takes, for messages.
        override: returns the value of the key, as YAML, of the text after ``--executor NAME:``;
            None: the text is wrong.
        start: starts the workers with the value of the key; returns their `Backend`.
        text: what the key is for, in Markdown; empty: the docstring of its section says so.
    """

    takes: Any
    default: Any
    usage: str
    override: Callable[[str], str | None]
    start: Callable[[Any], Any]
    text: str = ""
