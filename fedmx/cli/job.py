"""The processes of a federation: the server of a job, the client at a site, and the page.

    fedmx job-server FOLDER DESCRIPTOR
    fedmx job-client JSON
    fedmx page-server FOLDER DESCRIPTOR JSON

The federation's server and its sites start them; nobody types them.
"""

from __future__ import annotations

import json
import socket
import time
import uuid
from functools import partial
from pathlib import Path

WAIT_S = 0.2


def serve(folder: Path, descriptor: int) -> None:
    """Run a job, or go on with it, for the sites that take part.

    Args:
        folder: the job's.
        descriptor: takes the connections that the federation's server accepts.
    """
    from fedmx.assembly.assembly import Assembly
    from fedmx.assembly.run_folder import new_run_folder
    from fedmx.cli.deploy import run_deployed
    from fedmx.cli.options import permitted
    from fedmx.deployment.serve import serve as served
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder
    from fedmx.run.durable import read_document
    from fedmx.run.folder import kept_start
    from fedmx.server.survey import normalised

    facts = read_document(folder / "process.json").values
    overrides = [f"network.tls.{key}={json.dumps(path)}" for key, path in facts["tls"].items()]
    overrides.append(f"network.address={json.dumps(facts['address'])}")
    overrides.append(f"run.folder={json.dumps(str(folder / 'runs'))}")
    if facts["crl"] is not None:
        overrides.append(f"network.tls.crl={json.dumps(facts['crl'])}")
    taking = socket.socket(fileno=descriptor)
    sites, limit_s, shared = facts["sites"], facts["start_limit_s"], facts["shared"]
    runs = sorted((folder / "runs").glob("[!.]*/run.json"))
    if runs:
        run = RunFolder.open(runs[-1].parent)
        while run.process is not None:  # that of a server which was killed has not ended yet
            time.sleep(WAIT_S)
        experiment = permitted(run.experiment(overrides), facts["modules"], False)
        assembly = Assembly(experiment, start_file=kept_start(run))
        server = served(assembly, str(run.facts["run"]), sites=sites, taking=taking, shared=shared)
        run_deployed(server, run)
        return
    path = folder / "experiment.yaml"
    experiment = Experiment.read(path, overrides)
    experiment = permitted(experiment, facts["modules"], False)
    # Clients are asked for statistics in a run of its own, before that of the job.
    begin = partial(served, sites=sites, start_limit_s=limit_s, shared=shared)
    asking = partial(begin, run=uuid.uuid4().hex, taking=taking.dup())
    assembly = normalised(Assembly(experiment), asking)
    name = uuid.uuid4().hex
    server = begin(assembly, name, taking=taking)
    address = str(facts["address"])
    run_deployed(
        server,
        lambda: new_run_folder(assembly, "server", None, run=name, address=address, sites=sites),
    )


def take_part(words: str) -> None:
    """Take part in a job as a site.

    Args:
        words: the values that `fedmx.federation.site` gives, as JSON.
    """
    from fedmx.cli.deploy import take_part as run
    from fedmx.client.policy import Policy
    from fedmx.deployment.join import OwnPart, join
    from fedmx.experiment import Experiment
    from fedmx.run.durable import read_document
    from layers.network import ClientTLS

    given = json.loads(words)
    policy = None if given["policy"] is None else Policy.of(Path(given["policy"]))
    if policy is not None:  # the site has checked both
        policy = policy.model_copy(update={"experiments": None, "authors": None})
    accepted, modules = read_document(Path(given["accepted"])).values, tuple(given["modules"])
    certificate, key, ca = map(Path, given["tls"])
    joined = join(
        given["address"],
        given["client"],
        OwnPart(local={} if policy is None else policy.local, modules=modules),
        name=given["name"],
        tls=ClientTLS(certificate, key, ca, given["protocol"]),
        memory=Path(given["memory"]),
        policy=policy,
        job=Experiment.parse(accepted["experiment"], "the accepted experiment"),
    )
    with joined:
        run(joined)


def show(folder: Path, descriptor: int, words: str) -> None:
    """Serve the page of a federation.

    Args:
        folder: the federation's.
        descriptor: of the socket that listens.
        words: the values that `fedmx.federation.page_process` gives, as JSON.
    """
    from fedmx.federation.page_process import serve as served

    served(folder, descriptor, json.loads(words))
