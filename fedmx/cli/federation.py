"""``fedmx federation``, and what operators type: ``submit``, ``jobs``, ``cancel`` and ``fetch``."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.options import AsJson, Modules, Overrides, show_help_without_command, tls_files
from fedmx.cli.output import LogLines, begin_log, printable, say, show_table
from fedmx.cli.process import Interrupted
from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from layers.network import ClientTLS

app = typer.Typer(help="Serve a federation: sites stay, experiments come and go.")

To = Annotated[
    str, typer.Option("--to", metavar="HOST:PORT", help="The address of the federation.")
]
Certificates = Annotated[
    Path, typer.Option("--certs", metavar="FOLDER", help="The folder of ca.pem and of NAME.pem.")
]
As = Annotated[
    str, typer.Option("--as", metavar="NAME", help="The operator, whose NAME.pem and .key it has.")
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job, as in 000001.")]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command("serve")
def serve(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="For the queue, the jobs and their runs.")
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address of sites and operators.")
    ],
    certificates: Annotated[
        Path,
        typer.Option(
            "--certs", metavar="FOLDER", help="The folder of ca.pem, server.pem and server.key."
        ),
    ],
    at_once: Annotated[int, typer.Option(min=1, metavar="N", help="The most jobs at a time.")] = 1,
    start_limit: Annotated[
        float,
        typer.Option(
            min=1.0, metavar="SECONDS", help="After which a job fails whose sites are not ready."
        ),
    ] = 600.0,
    module: Modules = None,
    page: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The address of a web page that shows it."),
    ] = None,
    page_token_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File with the secret that readers of the page send."),
    ] = None,
) -> None:
    """Keep a queue of jobs, and run them at the sites that stay."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before the imports that read it
    from fedmx.components.engines import MODULES, MXNET
    from fedmx.federation.job_process import Options
    from fedmx.federation.page_process import PageProcess
    from fedmx.federation.server import Federation
    from fedmx.fork_server import COMMAND, ForkServer

    if page_token_file is not None and page is None:
        raise FedmxError("--page-token-file needs --page")
    crl = certificates / "crl.pem"
    options = Options(
        listen,
        certificates / "server.pem",
        certificates / "server.key",
        certificates / "ca.pem",
        crl=crl if crl.exists() else None,
        modules=tuple(module or ()),
        at_once=at_once,
        start_limit_s=start_limit,
    )
    shown = None
    if page is not None:
        tls = options.certificate.resolve(), options.key.resolve()
        shown = PageProcess(folder.resolve(), page, page_token_file, *tls)
    begin_log()
    imported = [*COMMAND, "fedmx.deployment.serve", *MODULES[MXNET]]
    try:
        with (
            ForkServer(imported, dict(os.environ)) as processes,
            LogLines(),
            Federation(folder.resolve(), options, processes) as federation,
            contextlib.ExitStack() as stack,
        ):
            if shown is not None:
                stack.callback(shown.close)
                shown.start(processes)
                federation.publish = shown.publish
            federation.run()
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the same command goes on with the queue") from None


def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file (YAML).")],
    to: To,
    certificates: Certificates,
    name: As = "operator",
    sites: Annotated[
        str, typer.Option(metavar="SITE,SITE", help="Offer it to these sites alone.")
    ] = "",
    set_: Overrides = None,
    module: Modules = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show the log until the job is over.")
    ] = False,
) -> None:
    """Put an experiment into a federation's queue."""
    from fedmx.experiment import Experiment
    from fedmx.federation.operator import Operator

    experiment = Experiment.read(file, list(set_ or []), modules=set(module or ()))
    chosen = tuple(filter(None, sites.split(",")))
    with Operator(to, _tls(certificates, name)) as operator:
        job = operator.submit(experiment.to_yaml(), chosen)
        typer.echo(f"job {job}")
        known = operator.order("sites")
        for text in _away(chosen, known):
            typer.echo(text, err=True)
        here = [one for one in known if one["address"] and (not chosen or one["name"] in chosen)]
        if len(here) < (experiment.clients or 0):
            text = f"it waits: it needs {experiment.clients} sites, and {len(here)} are connected"
            typer.echo(text, err=True)
        if follow:
            for text in operator.follow(job):
                typer.echo(printable(text), nl=False, err=True)
            found = operator.order("job", job)
            if found["state"] != "done":
                raise FedmxError(f"job {job} is {found['state']}: {found['reason']}")


def jobs(
    to: To, certificates: Certificates, name: As = "operator", as_json: AsJson = False
) -> None:
    """List the newest jobs of a federation, and its sites."""
    from rich.table import Table

    from fedmx.federation.operator import Operator

    with Operator(to, _tls(certificates, name)) as operator:
        found, sites = operator.order("jobs"), operator.order("sites")
    if as_json:
        typer.echo(json.dumps({**found, "sites": sites}))
        return
    table = Table("job", "experiment", "state", "sites", "operator", "submitted", box=None)
    for one in found["jobs"]:
        state = one["state"] + (
            "" if one["reason"] in ("", one["state"]) else f": {printable(one['reason'])}"
        )
        taking_part = ", ".join(one["sites"])
        table.add_row(one["id"], one["name"], state, taking_part, one["operator"], one["submitted"])
    show_table(table)
    for one in found["jobs"]:
        if one["state"] == "queued":
            for text in _away(one["asked"], sites):
                typer.echo(f"  {one['id']}  {text}")
        for site, reply in one["replies"].items():
            if reply != "accepted":
                typer.echo(f"  {one['id']}  {site} {printable(reply)}")
    table = Table("site", "state", "fedmx", "data", box=None)
    for one in sites:
        told = map(printable, (one["version"], ", ".join(one["data"])))
        table.add_row(one["name"], one["state"], *told)
    show_table(table)


def _away(asked: Sequence[str], sites: Sequence[Mapping[str, Any]]) -> list[str]:
    here = {one["name"] for one in sites if one["address"]}
    return [f"{name} is not connected" for name in asked if name not in here]


def cancel(job: JobName, to: To, certificates: Certificates, name: As = "operator") -> None:
    """Cancel a job of a federation."""
    from fedmx.federation.operator import Operator

    with Operator(to, _tls(certificates, name)) as operator:
        operator.order("cancel", job)
    typer.echo(f"job {job} is cancelled")


def fetch(
    job: JobName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The run folder to write.")],
    to: To,
    certificates: Certificates,
    name: As = "operator",
) -> None:
    """Receive the run folder of a job that is over.

    A transfer that was interrupted goes on where it ended.
    """
    from fedmx.federation.operator import Operator

    archives = folder.parent / ".fetched"
    archives.mkdir(parents=True, exist_ok=True)
    with Operator(to, _tls(certificates, name), archives) as operator:
        operator.fetch(job, folder, archives)
    with contextlib.suppress(OSError):  # other transfers are not over
        archives.rmdir()
    say("fetched", f"run folder: {folder}", path=str(folder))


def _site_order(order: str, site: str, to: str, certificates: Path, name: str) -> None:
    from fedmx.federation.operator import Operator

    with Operator(to, _tls(certificates, name)) as operator:
        operator.order(order, site)


SiteName = Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")]


@app.command("remove")
def remove(site: SiteName, to: To, certificates: Certificates, name: As = "operator") -> None:
    """Let a site take part in no further job, and end its part in the current one."""
    _site_order("remove", site, to, certificates, name)
    typer.echo(f"{site} is removed; fedmx federation add {site} lets it take part again")


@app.command("add")
def add(site: SiteName, to: To, certificates: Certificates, name: As = "operator") -> None:
    """Let a site that was removed take part again."""
    _site_order("add", site, to, certificates, name)
    typer.echo(f"{site} may take part again")


def _tls(certificates: Path, name: str) -> ClientTLS:
    from layers.network import ClientTLS

    own, key = certificates / f"{name}.pem", certificates / f"{name}.key"
    tls = ClientTLS(own, key, certificates / "ca.pem")
    tls.context()
    return tls


def stay(
    address: str,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    memory: Path,
    policy: Path | None,
    modules: tuple[str, ...],
    available_if: str | None,
) -> None:
    """Stay at a federation as a site; see `fedmx client --stay`.

    Raises:
        FedmxError: an option is wrong, or the federation refuses this site.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # before the imports that read it
    from fedmx.components.engines import MODULES, MXNET
    from fedmx.federation.site import SiteOptions, StayingSite
    from fedmx.fork_server import COMMAND, ForkServer
    from layers.network import ClientTLS
    from layers.network.certificates import common_name_of

    files = tls_files(ca, certificate, key)
    if files is None:
        raise FedmxError("--stay: a site has a name in its certificate; give --ca, --cert, --key")
    tls = ClientTLS(files[1].resolve(), files[2].resolve(), files[0].resolve())
    tls.context()
    options = SiteOptions(
        address,
        common_name_of(files[1]),
        tls,
        memory.resolve(),
        None if policy is None else policy.resolve(),
        modules,
        available_if,
    )
    begin_log()
    imported = [*COMMAND, "fedmx.deployment.join", *MODULES[MXNET]]
    try:
        with (
            ForkServer(imported, dict(os.environ)) as processes,
            LogLines(),
            StayingSite(options, processes) as site,
        ):
            site.run()
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the same command joins again") from None
