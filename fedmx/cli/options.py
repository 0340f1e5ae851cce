"""Options that several commands share, and the permission to run the user's code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.process import USER_ERROR, restart_on
from fedmx.components.text import shown
from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from fedmx.components.user_code import NamedCode
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder


ExperimentFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The experiment file (YAML).", show_default=False),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a value, e.g. logic.selector.fraction=0.2; may be repeated.",
    ),
]
ExecutorName = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="EXECUTOR",
        help="Where clients train, e.g. serial, processes:N, ray:ADDRESS; the result is the same.",
        show_default=False,
    ),
]
CaFile = Annotated[
    Path | None, typer.Option("--ca", metavar="PEM", help="Certificate of the private CA.")
]
CertificateFile = Annotated[
    Path | None, typer.Option("--cert", metavar="PEM", help="This machine's certificate.")
]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="PEM", help="This machine's private key.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="PATH",
        help="File with a secret that the server and all clients share.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
AllowVersion = Annotated[
    bool,
    typer.Option(
        "--allow-version",
        help="Go on although the run, or a client, has another minor version of fedmx.",
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow plain TCP beyond this machine.")]


def executor_override(name: str | None) -> list[str]:
    """Return the overrides that set an experiment's executor, in the form of ``--set``.

    Raises:
        FedmxError: there is no such executor.
    """
    if name is None:
        return []
    from fedmx.experiment.sections import EXECUTORS

    if name in ("serial", *EXECUTORS):
        return [f"executor={name}"]
    kind, _, argument = name.partition(":")
    value = EXECUTORS[kind].override(argument) if kind in EXECUTORS and argument else None
    if value is not None:
        return [f"executor={{{kind}: {value}}}"]
    *others, last = ("serial", *(one.usage for one in EXECUTORS.values()))
    raise FedmxError(f"--executor {shown(name)}: must be {', '.join(others)} or {last}")


def tls_files(
    ca: Path | None, certificate: Path | None, key: Path | None
) -> tuple[Path, Path, Path] | None:
    """Return the TLS files of this machine, or None if none is given.

    Raises:
        FedmxError: only some of them are given.
    """
    if ca is None and certificate is None and key is None:
        return None
    if ca is None or certificate is None or key is None:
        raise FedmxError("TLS needs all of --ca, --cert and --key; make them with fedmx certs")
    return ca, certificate, key


def show_help_without_command(context: typer.Context) -> None:
    """Show the help and exit if a group was called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USER_ERROR)


Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        metavar="MODULE",
        help="A module of your own that the experiment may import; may be repeated.",
    ),
]
OwnModules = Annotated[
    bool,
    typer.Option(
        "--own-modules", help="Allow the modules in the experiment's folder that it names."
    ),
]


def permitted(
    experiment: Experiment, modules: Sequence[str] | None, own_modules: bool
) -> Experiment:
    """Return an experiment that may import the code that it names; see `allowed_modules`.

    The command is restarted if the experiment needs other CPU instructions.

    Raises:
        ExperimentError: it names code that is not allowed; the text says where the code is.
    """
    restart_on(experiment.compute.bits)
    return experiment.allowing(allowed_modules(experiment, modules, own_modules))


def allowed_modules(
    experiment: Experiment,
    modules: Sequence[str] | None,
    own_modules: bool,
    typed: bool = True,
) -> frozenset[str]:
    """Return the modules that an experiment may import; none is imported here.

    Modules beside the experiment are allowed by ``--own-modules``, or on a terminal by the answer
    to a question; all others by ``--module`` alone.

    Args:
        experiment: the experiment.
        modules: those after ``--module``.
        own_modules: whether ``--own-modules`` was given.
        typed: whether its overrides were typed now; the code that they name is then allowed.

    Raises:
        ExperimentError: it names code that is not allowed; the text says where the code is.
    """
    from fedmx.components.user_code import is_allowed, named_code
    from fedmx.errors import ExperimentError

    allowed = frozenset(modules or ())
    code = [
        one
        for one in named_code(experiment.components)
        if not (typed and one.component.given_by_hand) and not is_allowed(one.name, allowed)
    ]
    beside = [one for one in code if one.owner == "beside"]
    if beside and (own_modules or (len(beside) == len(code) and _agreed(beside))):
        allowed |= {one.root for one in beside}
        code = [one for one in code if one.owner != "beside"]
    if code:
        problems = [one.component.problem(_problem(one)) for one in code]
        raise ExperimentError.of(code[0].component.source.name, problems)
    return allowed


def modules_of_run(
    folder: RunFolder,
    modules: Sequence[str] | None,
    own_modules: bool,
    overrides: Sequence[str] = (),
) -> frozenset[str]:
    """Return the modules that the experiment of a run may import, with and without overrides.

    The command is restarted if the experiment needs other CPU instructions.

    Raises:
        ExperimentError: see `allowed_modules`; or an override is wrong.
    """
    experiment = folder.experiment()
    changed = folder.experiment(overrides) if overrides else experiment
    restart_on(experiment.compute.bits)
    allowed = allowed_modules(experiment, modules, own_modules)
    return allowed | allowed_modules(changed, [*(modules or ()), *allowed], own_modules)


def place(code: NamedCode) -> str:
    """Return the place of a component's code, in words."""
    return {
        "beside": f"{code.file}, beside the experiment",
        "here": f"{code.file}, in the working directory",
        "installed": f"{code.file}, installed",
        "missing": "not found here",
    }[code.owner]


def options(code: Sequence[NamedCode]) -> str:
    """Return the command-line options that allow some code."""
    others = sorted({one.root for one in code if one.owner != "beside"})
    own = ["--own-modules"] if any(one.owner == "beside" for one in code) else []
    return " ".join([*own, *(f"--module {root}" for root in others)])


def _problem(code: NamedCode) -> str:
    return (
        f"{code.name} is not fedmx's code ({place(code)}), and would run; "
        f"if you trust it, allow it: {options([code])}"
    )


def _agreed(code: Sequence[NamedCode]) -> bool:
    """Ask whether the code may run; without a terminal, the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    source = code[0].component.source.name
    typer.echo(f"{source} names code beside it, which runs with all your rights:", err=True)
    for name, place in {one.name: one.file for one in code}.items():
        typer.echo(f"  {name}  ({place})", err=True)
    return typer.confirm("Run this code?", default=False, err=True)
