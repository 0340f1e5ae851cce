"""The permission to run code that an experiment names: options, or a question on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedmx.experiment.own_code import NamedCode

Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        metavar="MODULE",
        help="A module of yours whose names the experiment may use; may be repeated.",
    ),
]
OwnModules = Annotated[
    bool,
    typer.Option("--own-modules", help="Allow the modules beside the experiment that it names."),
]


def allowed_modules(
    file: Path,
    overrides: Sequence[str],
    modules: Sequence[str] | None,
    own_modules: bool,
    folder: Path | None = None,
    typed: bool = True,
) -> frozenset[str]:
    """Return the modules that an experiment may import, before any of them is imported.

    Modules beside the experiment are allowed by ``--own-modules``, or by the answer to a question
    if this is a terminal; all others by ``--module`` alone.

    Args:
        file: the experiment file.
        overrides: ``PATH=VALUE`` texts; what they name is allowed if they were typed now.
        modules: those after ``--module``.
        own_modules: whether ``--own-modules`` was given.
        folder: where its own modules are; None: the file's folder.
        typed: whether the overrides were typed now, or are from a file, too.

    Raises:
        ExperimentError: it names code that is not allowed; the text says whose it is.
    """
    from fedmx.components.user_code import is_allowed
    from fedmx.errors import ExperimentError
    from fedmx.experiment.own_code import named_code

    allowed = frozenset(modules or ())
    code = [one for one in named_code(file, overrides, folder) if one.owner is not None]
    code = [one for one in code if not (typed and one.given_by_hand)]
    code = [one for one in code if not is_allowed(one.name, allowed)]
    beside = [one for one in code if one.owner == "beside"]
    if beside and (own_modules or (len(beside) == len(code) and _agreed(file, beside))):
        allowed |= {one.root for one in beside}
        code = [one for one in code if one.owner != "beside"]
    if code:
        problems = [one.source.problem(one.where, _problem(one)) for one in code]
        raise ExperimentError.of(str(file), problems)
    return allowed


def place(code: NamedCode) -> str:
    """Return where the code of a component is, in words."""
    return {
        None: "fedmx",
        "beside": f"{code.file}, beside the experiment",
        "here": f"{code.file}, in the working directory",
        "installed": f"{code.file}, installed",
        "missing": "not found here",
    }[code.owner]


def options(code: Sequence[NamedCode]) -> str:
    """Return the options that allow some code."""
    others = sorted({one.root for one in code if one.owner not in ("beside", None)})
    own = ["--own-modules"] if any(one.owner == "beside" for one in code) else []
    return " ".join([*own, *(f"--module {root}" for root in others)])


def _problem(code: NamedCode) -> str:
    return (
        f"{code.name} is not fedmx's code ({place(code)}), and would run; "
        f"if you trust it, allow it: {options([code])}"
    )


def _agreed(file: Path, code: Sequence[NamedCode]) -> bool:
    """Ask whether the code may run; no is the answer where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    typer.echo(f"{file} names code beside it, which runs with all your rights:", err=True)
    for name, place in {one.name: one.file for one in code}.items():
        typer.echo(f"  {name}  ({place})", err=True)
    return typer.confirm("Run this code?", default=False, err=True)
