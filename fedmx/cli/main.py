"""The entry point: commands, and how their errors reach a user."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from fedmx.cli import certs, data, deploy, listing, report, run

WRONG = 2  # exit code of everything that the user can put right
INTERRUPTED = 130

app = typer.Typer(
    name="fedmx",
    help="Federated learning for MXNet/Gluon: simulate, deploy, compare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("server")(deploy.server)
app.command("client")(deploy.client)
app.command("report")(report.report)
app.command("list")(listing.show)
app.add_typer(data.app, name="data")
app.add_typer(certs.app, name="certs")


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    if version:
        from fedmx.version import __version__

        typer.echo(f"fedmx {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; what goes wrong is one line on stderr and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        code = app(words, standalone_mode=False)
    except typer.Abort:
        _end("interrupted", INTERRUPTED, debug)
    except KeyboardInterrupt:
        _end("interrupted; `fedmx resume RUN` goes on", INTERRUPTED, debug)
    except TyperException as error:
        format_message = getattr(error, "format_message", error.__str__)
        _end(f"{format_message()} (see fedmx --help)", WRONG, debug)
    except Exception as error:  # noqa: BLE001, the last place that can say it in one line
        if not debug and not _is_expected(error):
            sys.stderr.write("fedmx: this is a fault of fedmx or of your own code:\n")
            traceback.print_exc()
            sys.exit(1)
        _end(str(error) or type(error).__name__, WRONG, debug)
    sys.exit(code if isinstance(code, int) else 0)


def _is_expected(error: Exception) -> bool:
    """Whether an error speaks to the user; only what is loaded can have been raised."""
    for module, name in (
        ("fedmx.errors", "FedmxError"),
        ("layers.network.errors", "NetworkError"),
        ("layers.logic.errors", "LogicError"),
        ("layers.compute.errors", "ComputeError"),
    ):
        root = getattr(sys.modules.get(module), name, None)
        if root is not None and isinstance(error, root):
            return True
    return False


def _end(message: str, code: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    sys.stderr.write(f"fedmx: {message}\n")
    sys.exit(code)
