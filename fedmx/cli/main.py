"""The table of commands, and the output of their errors.

A command imports MXNet and what needs it when its words and its files are checked, so that a wrong
one is reported at once.
"""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import typer
from typer.exceptions import TyperException

from fedmx.cli import (
    certs,
    clients,
    ctl,
    data,
    deploy,
    evaluate,
    federation,
    job,
    names,
    run,
    runs,
    survey,
    sweep,
    time_travel,
)
from fedmx.cli.examples import show_examples
from fedmx.cli.options import show_help_without_command
from fedmx.cli.output import OPTION, error_text, is_json, line, printable, take_format, timed
from fedmx.cli.process import INTERNAL_ERROR, INTERRUPTED, USER_ERROR, Interrupted
from fedmx.errors import FedmxError

_ASCII = {"·": ".", "…": "...", "–": "-"}
"""Replacements on a terminal without Unicode; any other character becomes ``?``."""

app = typer.Typer(
    name="fedmx",
    help="Federated learning for MXNet/Gluon: simulate, deploy, compare.",
    epilog="Begin with: fedmx new first-idea --hook",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "new": names.new,
    "run": run.run,
    "resume": run.resume,
    "fork": time_travel.fork,
    "sweep": sweep.sweep,
    "survey": survey.survey,
    "submit": federation.submit,
    "jobs": federation.jobs,
    "cancel": federation.cancel,
    "fetch": federation.fetch,
    "server": deploy.server,
    "client": deploy.client,
    "clients": clients.clients,
    "runs": runs.runs,
    "status": runs.status,
    "ctl": ctl.ctl,
    "report": runs.report,
    "replay": time_travel.replay,
    "diff": time_travel.diff,
    "export": runs.export,
    "evaluate": evaluate.evaluate,
    "pack": time_travel.pack,
    "verify": time_travel.verify,
    "unpack": time_travel.unpack,
    "list": names.list_,
    "explain": names.explain,
    "schema": names.schema,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
for name, command in (
    ("job-server", job.serve),
    ("job-client", job.take_part),
    ("page-server", job.show),
):
    app.command(name, hidden=True)(command)
app.add_typer(federation.app, name="federation")
app.add_typer(data.app, name="data")
app.add_typer(certs.certs, name="certs")
show_examples(app)


@app.callback(invoke_without_command=True)
def _common_options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    log_format: str = typer.Option(
        "text; timed for server and client",
        OPTION,
        metavar="text|timed|json",
        help="Format of the log lines on stderr.",
    ),
) -> None:
    if version:
        from fedmx.version import __version__

        typer.echo(f"fedmx {__version__}")
        raise typer.Exit
    show_help_without_command(context)


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; an error is one line on stderr."""
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        words = take_format(words)
    except FedmxError as error:
        return _show_error(str(error), USER_ERROR, debug)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs that it builds its font cache
    codecs.register_error("fedmx", _ascii_substitutes)
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(errors="fedmx")  # type: ignore[union-attr]
    try:
        command = typer.main.get_command(app)
        code = command(words, prog_name="fedmx", standalone_mode=False)
        sys.stdout.flush()
    except Interrupted as error:
        return _show_error(str(error), INTERRUPTED, debug)
    except TyperException as error:
        return _show_error(_usage_text(error), USER_ERROR, debug)
    except BrokenPipeError:
        return _close_stdout()
    except Exception as error:  # noqa: BLE001, the last place that can show it in one line
        text = error_text(error)
        if text is None:
            where = "in the traceback" if is_json() else "in the traceback above"
            message = f"this is a fault of fedmx, or of your own code {where}"
            return _show_error(message, INTERNAL_ERROR, True)
        return _show_error(text, USER_ERROR, debug)
    if code == INTERRUPTED:  # typer returns it for an uncaught KeyboardInterrupt
        return _show_error("interrupted", INTERRUPTED, False)
    return code if isinstance(code, int) else 0


def _ascii_substitutes(error: UnicodeError) -> tuple[str, int]:
    """Return ASCII for characters that a terminal cannot show; a codec's error handler."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_ASCII.get(one, "?") for one in missing), error.end


def _usage_text(error: TyperException) -> str:
    """Return one line about what is wrong with a command's arguments."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fedmx"
    text = getattr(error, "format_message", error.__str__)().replace(". Did", "; did").rstrip(".?")
    return f"{printable(text[:1].lower() + text[1:])} ({path} --help says more)"


def _show_error(message: str, code: int, debug: bool) -> int:
    """Write a message to stderr, after the traceback if ``debug`` is set, and return ``code``."""
    trace = traceback.format_exc() if debug else None
    try:
        sys.stdout.flush()
    except OSError:  # for example, the disk is full; Python would flush the rest at its exit
        _close_stdout()
    if is_json():
        sys.stderr.write(line("error", "error", message, {"code": code}, trace) + "\n")
    else:
        sys.stderr.write(f"{trace or ''}{timed(f'fedmx: {message}')}\n")
    return code


def _close_stdout() -> int:
    """Discard further output: it cannot be written, or its reader has exited (``| head``)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return INTERNAL_ERROR
