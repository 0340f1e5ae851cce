"""``fedmx survey``: statistics of the clients' samples, before a run."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.deploy import check_network, served
from fedmx.cli.options import (
    AsJson,
    CaFile,
    CertificateFile,
    ExperimentFile,
    Insecure,
    KeyFile,
    Modules,
    Overrides,
    OwnModules,
    TokenFile,
    permitted,
)
from fedmx.cli.output import begin_log, say, show_table, show_text

if TYPE_CHECKING:
    from fedmx.server.survey import Survey

LISTED = 40  # features in the table; --json has all


def survey(
    file: ExperimentFile,
    set_: Overrides = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ask clients that connect here; without it, the clients are simulated.",
        ),
    ] = None,
    least: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="The fewest samples of a client that answers. [default: 10]"
        ),
    ] = None,
    ca: CaFile = None,
    cert: CertificateFile = None,
    key: KeyFile = None,
    token_file: TokenFile = None,
    insecure: Insecure = False,
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Show statistics of the samples of all clients, before a run."""
    given = served(file, set_, listen, ca, cert, key, None, token_file, insecure)
    experiment = permitted(given, module, own_modules)
    check_network(experiment.network)

    from fedmx.assembly.assembly import Assembly
    from fedmx.cli.datasets import files_with_progress
    from fedmx.deployment.serve import serve
    from fedmx.server.survey import LEAST, unnormalised
    from fedmx.server.survey import survey as ask
    from fedmx.simulation.simulate import simulate

    with files_with_progress() as files:
        assembly = unnormalised(Assembly(experiment, files))
        if listen is None:
            server = simulate(assembly)
        else:
            begin_log()
            server = serve(assembly, uuid.uuid4().hex)
    with server:
        if listen is not None:
            say("listening", f"listening on {server.network.address}")
        found = ask(server, assembly, least or LEAST)
        server.finish("the survey is over")
    if as_json:
        typer.echo(json.dumps(_document(found)))
        return
    _show(found)


def _document(found: Survey) -> dict[str, Any]:
    """Return what ``--json`` prints."""

    def of(one: Any) -> dict[str, Any]:
        names = ("number", "mean", "deviation", "missing", "labels", "quantiles")
        return {name: getattr(one, name).tolist() for name in names}

    return {
        "all": of(found.all),
        "clients": {str(client): of(one) for client, one in found.clients.items()},
        "silent": list(found.silent),
        "far": [{"client": client, "feature": feature} for client, feature in found.far()],
        "normalise": found.normalise(),
    }


def _show(found: Survey) -> None:
    from rich import box
    from rich.table import Table

    from fedmx.report.formats import number
    from layers.logic.core.statistics import QUANTILES

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    shown = [0, 2, 4]  # the others do not fit into 80 columns; --json has them
    quantiles = [f"{100 * QUANTILES[one]:g} %" for one in shown]
    for heading in ("feature", "number", "missing", "mean", "deviation", *quantiles):
        table.add_column(heading, justify="right")
    whole = found.all
    for feature in range(min(len(whole.mean), LISTED)):
        cells = [f"{int(one[feature]):,}" for one in (whole.number, whole.missing)]
        cells += [number(float(one[feature])) for one in (whole.mean, whole.deviation)]
        cells += [number(float(one[feature])) for one in whole.quantiles[shown]]
        table.add_row(str(feature), *cells)
    show_table(table)
    lines = [f"{len(found.clients)} clients told their statistics"]
    if len(whole.mean) > LISTED:
        lines.append(f"{len(whole.mean) - LISTED} further features: --json has them")
    if found.silent:
        lines.append(f"clients {', '.join(map(str, found.silent))} said nothing")
    if len(whole.labels):
        lines.append(f"samples by class: {', '.join(f'{int(one):,}' for one in whole.labels)}")
    for client, feature in found.far():
        mean = number(float(found.clients[client].mean[feature]))
        others = number(float(whole.mean[feature]))
        lines.append(
            f"client {client}: feature {feature} has mean {mean}, and that of all is {others}; "
            "are its units others?"
        )
    show_text(lines)
