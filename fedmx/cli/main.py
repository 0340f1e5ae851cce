"""The commands, and how their errors reach a user."""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from fedmx.cli.commands import certs, client, data, explain, listing, report, server
from fedmx.cli.commands import run as simulation
from fedmx.cli.terminal.error_text import error_text, printable
from fedmx.cli.terminal.interrupts import Interrupted
from fedmx.cli.terminal.options import help_if_alone

FAULT = 1  # exit code of what the user cannot put right
WRONG = 2  # and of what the user can
INTERRUPTED = 130
POORER = {"·": ".", "…": "...", "–": "-"}

app = typer.Typer(
    name="fedmx",
    help="Federated learning for MXNet/Gluon: simulate, deploy, compare.",
    epilog="Begin with: fedmx run examples/quickstart.yaml",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(simulation.run)
app.command("resume")(simulation.resume)
app.command("server")(server.server)
app.command("client")(client.client)
app.command("report")(report.report)
app.command("list")(listing.show)
app.command("explain")(explain.explain)
app.add_typer(data.app, name="data")
app.add_typer(certs.app, name="certs")


@app.callback(invoke_without_command=True)
def _shared(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    if version:
        from fedmx.version import __version__

        typer.echo(f"fedmx {__version__}")
        raise typer.Exit
    help_if_alone(context)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; what goes wrong is one line on stderr."""
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its font cache is not news
    codecs.register_error("fedmx", _poorer)
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(errors="fedmx")  # type: ignore[union-attr]
    try:
        code = app(words, prog_name="fedmx", standalone_mode=False)
        sys.stdout.flush()
    except Interrupted as error:
        return _end(str(error), INTERRUPTED, debug)
    except TyperException as error:
        return _end(_usage(error), WRONG, debug)
    except BrokenPipeError:
        return _end_quietly()
    except Exception as error:  # noqa: BLE001, the last place that can say it in one line
        text = error_text(error)
        if text is None:
            traceback.print_exc()
            return _end("this is a fault of fedmx, or of code of yours above", FAULT, False)
        return _end(text, WRONG, debug)
    finally:
        _start_quietly()
    if code == INTERRUPTED:  # typer's word for a KeyboardInterrupt that nobody caught
        return _end("interrupted", INTERRUPTED, False)
    return code if isinstance(code, int) else 0


def _poorer(error: UnicodeError) -> tuple[str, int]:
    """Replace what a terminal cannot show by something that it can, as a codec's error handler."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(POORER.get(one, "?") for one in missing), error.end


def _usage(error: TyperException) -> str:
    text = getattr(error, "format_message", error.__str__)().replace(". Did", "; did").rstrip(".?")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fedmx"
    return f"{printable(text[:1].lower() + text[1:])} ({path} --help says more)"


def _end(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.write(f"fedmx: {message}\n")
    return code


def _end_quietly() -> int:
    """Whoever read the output has left (``fedmx list | head``): there is nobody to tell."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAULT


def _start_quietly() -> None:
    """Start MXNet if it was loaded for nothing: it would do so at the end, and talk about it."""
    if "mxnet" in sys.modules:
        with contextlib.suppress(Exception):
            from layers.compute.engines.mxnet.runtime import one_thread

            with one_thread():
                pass
