"""What operators ask of a federation's server, and its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.federation.archives import Archives, archive_of
from fedmx.federation.author import author_of
from fedmx.federation.job_process import JobProcess, Options
from fedmx.federation.ledger import CANCELLED, OVER, Job, Ledger
from fedmx.federation.messages import OPERATOR, Answered, JobStop, Order, Submit
from fedmx.federation.offers import EXPERIMENT, PROOF, Site
from fedmx.run.durable import advice_on, write_bytes_durably, write_text_durably
from layers.network import Listener, NetworkError
from layers.network.limits import check_identity

MOST_LOG_BYTES = 1 << 20  # of one answer
SHOWN = 100  # the most jobs in an answer


class Federation(Protocol):
    """What orders are about: the server of a federation."""

    options: Options
    ledger: Ledger
    listener: Listener
    sites: dict[str, Site]
    active: dict[str, JobProcess]
    archives: Archives

    def job_folder(self, job: str) -> Path:
        """Return the folder of a job."""

    def end(self, name: str, who: str, state: str, reason: str) -> None:
        """End a job that has no process."""

    def send(self, peer: str, message: object) -> bool:
        """Send a message; return whether its receiver is connected."""


@dataclass(frozen=True)
class Sender:
    """An operator at one connection.

    Attributes:
        peer: the connection's name.
        name: the operator's, in the certificate.
        role: in the certificate, `OPERATOR` or `READER`.
    """

    peer: str
    name: str
    role: str


def answer(federation: Federation, who: Sender, message: object) -> Answered | None:
    """Carry out what an operator asks for, and return the answer; None: it comes later."""
    try:
        if isinstance(message, Submit):
            content = _submit(federation, who, message)
        elif isinstance(message, Order):
            changes, carry_out = ORDERS.get(message.name, (True, _unknown))
            if changes:
                _check_role(who)
            content = carry_out(federation, who, message)
        else:
            raise FedmxError("a message that an operator does not send")
    except (FedmxError, NetworkError, OSError) as error:
        content = error
    return None if content is None else answered(content)


def answered(content: Any) -> Answered:
    """Return the answer with what was asked for, or with the error."""
    if isinstance(content, Exception):
        return Answered(" ".join(reason_of(content).split()), "null")
    return Answered("", json.dumps(content))


def reason_of(error: Exception) -> str:
    """Return an error's text, with what to do about a file that cannot be written."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}{advice_on(error)}"
    return str(error)


def _check_role(who: Sender) -> None:
    if who.role != OPERATOR:
        raise FedmxError(f"{who.name} may read, and not give orders; use an operator's certificate")


def _submit(federation: Federation, who: Sender, message: Submit) -> Any:
    _check_role(who)
    modules = federation.options.modules
    experiment = Experiment.parse(message.experiment, "the experiment", modules=modules)
    try:
        author = author_of(message.proof, message.experiment, federation.options.ca)
    except ValueError as error:
        raise FedmxError(f"the experiment's signature: {error}") from None
    if author != who.name:
        raise FedmxError(f"the experiment's signature: it is of {author}, not of {who.name}")
    clients, asked = experiment.clients, list(dict.fromkeys(message.sites))
    for site in asked:
        check_identity(site)
    if asked and len(asked) < (clients or 0):
        raise FedmxError(f"clients: {clients}, and it is offered to {len(asked)} sites")
    name = federation.ledger.next_id()
    folder = federation.job_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    write_text_durably(folder / EXPERIMENT, message.experiment)
    write_bytes_durably(folder / PROOF, message.proof)
    digest = experiment.digest()
    told = {"name": experiment.name, "digest": digest, "asked": asked}
    federation.ledger.add(who.name, "submit", job=name, **told)
    return {"job": name}


def _unknown(federation: Federation, who: Sender, order: Order) -> Any:
    raise FedmxError(f"there is no order {order.name[:40]!r}")


def _job(federation: Federation, name: str) -> Job:
    job = federation.ledger.jobs.get(name)
    if job is None:
        raise FedmxError(f"there is no job {name[:40]!r}; fedmx jobs lists them")
    return job


def _jobs(federation: Federation, who: Sender, order: Order) -> Any:
    newest = list(federation.ledger.jobs.values())[-SHOWN:]
    return {"jobs": [asdict(one) for one in newest], "all": federation.ledger.number}


def states_of_sites(federation: Federation) -> list[dict[str, Any]]:
    """Return the sites with what each does now, as JSON can hold them."""
    found = []
    for one in federation.sites.values():
        removed = federation.ledger.removed.get(one.name)
        jobs = f"in job {', '.join(one.jobs)}"
        state = jobs if one.jobs else "free" if one.address else "away"
        found.append({**asdict(one), "removed": removed, "state": "removed" if removed else state})
    return found


def _one_job(federation: Federation, who: Sender, order: Order) -> Any:
    return asdict(_job(federation, order.about))


def _sites(federation: Federation, who: Sender, order: Order) -> Any:
    return states_of_sites(federation)


def _cancel(federation: Federation, who: Sender, order: Order) -> Any:
    job = _job(federation, order.about)
    if job.state in OVER:
        raise FedmxError(f"job {job.id} is {job.state} already")
    active = federation.active.get(job.id)
    if active is None:
        federation.end(job.id, who.name, CANCELLED, "cancelled")
    else:
        active.cancelled = who.name
        active.process.terminate()
    return {"job": job.id}


def _read_log(federation: Federation, who: Sender, order: Order) -> Any:
    job = _job(federation, order.about)
    path = federation.job_folder(job.id) / "log"
    content = b""
    if path.exists():
        with path.open("rb") as file:
            file.seek(min(max(order.offset, 0), path.stat().st_size))
            content = file.read(MOST_LOG_BYTES)
    content = content[: content.rfind(b"\n") + 1]
    text = content.decode(errors="replace")
    return {"text": text, "offset": order.offset + len(content), "over": job.state in OVER}


def _archive(federation: Federation, who: Sender, order: Order) -> Any:
    """Tell what identifies the archive of a job's run folder; None: it is being made."""
    job = _job(federation, order.about)
    if job.state not in OVER:
        raise FedmxError(f"job {job.id} is {job.state}; fetch it when it is over")
    folder = federation.job_folder(job.id)
    if not any((folder / "runs").glob("[!.]*")):
        raise FedmxError(f"job {job.id} has no run folder; it is {job.state}: {job.reason}")
    return federation.archives.ask(folder, who.peer)


def _send(federation: Federation, who: Sender, order: Order) -> Any:
    """Send the archive, which the operator expects by now."""
    job = _job(federation, order.about)
    archive = archive_of(federation.job_folder(job.id))
    if not archive.exists():
        raise FedmxError(f"job {job.id} has no archive")
    federation.listener.send_file(who.peer, archive)
    return {}


def _remove(federation: Federation, who: Sender, order: Order) -> Any:
    check_identity(order.about)
    federation.ledger.add(who.name, "remove", site=order.about, reason=f"by {who.name}")
    for name, active in federation.active.items():
        job = federation.ledger.jobs[name]
        if order.about in job.sites:
            number = job.sites.index(order.about)
            active.leave_out(order.about, number, f"was removed by {who.name}")
    site = federation.sites.get(order.about)
    while site is not None and site.jobs:
        federation.send(site.name, JobStop(site.jobs.pop()))
    return {"site": order.about}


def _add(federation: Federation, who: Sender, order: Order) -> Any:
    if order.about not in federation.ledger.removed:
        raise FedmxError(f"{order.about[:64]} was not removed")
    federation.ledger.add(who.name, "add", site=order.about)
    return {"site": order.about}


ORDERS: Mapping[str, tuple[bool, Callable[[Federation, Sender, Order], Any]]] = {
    "jobs": (False, _jobs),
    "job": (False, _one_job),
    "sites": (False, _sites),
    "log": (False, _read_log),
    "archive": (False, _archive),
    "send": (False, _send),
    "cancel": (True, _cancel),
    "remove": (True, _remove),
    "add": (True, _add),
}
"""Each order by its name: whether it changes something, which only operators may, and what it does.
"""
