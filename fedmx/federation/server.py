"""The server of a federation: it keeps the queue, asks sites, and starts a process for each job."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedmx.connection_log import log_certificates
from fedmx.deployment.client_log import ClientLog
from fedmx.deployment.operator_socket import ask
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.experiment.sections import LOG_LINES
from fedmx.federation.ledger import (
    CANCELLED,
    DONE,
    FAILED,
    OVER,
    QUEUED,
    RUNNING,
    Job,
    Ledger,
    told,
)
from fedmx.federation.messages import (
    ACCEPTED,
    CANNOT_TAKE_PART,
    CODEC,
    JOB_PROTOCOL,
    REFUSED,
    REPLIES,
    Answered,
    JobEnded,
    JobOffer,
    JobReply,
    JobStart,
    JobStop,
    Order,
    Presence,
    Submit,
)
from fedmx.fork_server import ForkedProcess, ForkServer
from fedmx.log import Log
from fedmx.run.durable import (
    RunError,
    advice_on,
    sha256_of,
    write_document,
    write_text_durably,
)
from fedmx.run.lock import hold
from fedmx.run.secret_file import SECRET
from layers.network import (
    CertificateExpires,
    CertificatesRefused,
    CertificatesRenewed,
    ConnectionRejected,
    Event,
    Joined,
    Left,
    Limits,
    Listener,
    NetworkError,
    Received,
    ServerTLS,
)
from layers.network.handed import pair
from layers.network.limits import check_identity

log = Log("fedmx.federation")

OPERATOR, READER = "operator", "reader"
TICK_S = 0.2
OFFER_S = 15.0  # for a site's reply, before the offer counts as not answered
DISK_S = 1.0  # before it is tried again to write
AGAIN_S = 30.0  # after "not now", before a site is asked again
MOST_LOG_BYTES = 1 << 20  # of one answer
SHOWN = 100  # the most jobs in an answer
LOOKS_AHEAD = 8  # the jobs that wait for replies at a time; the others wait for them
MOST_OFFERED = 64  # the jobs that wait and are offered, also those that sites do not take
MOST_BYTES = 500  # of a text of a site
MOST_RESTARTS = 3  # of a site's process for a job
MOST_DATA = 100  # names of a site's data


@dataclass
class Site:
    """A site that is connected, or was.

    Attributes:
        name: in its certificate.
        address: of its connection; empty: it is not connected.
        version: of fedmx there.
        data: the names of its local data.
        seen_s: when it was heard last (seconds since 1970).
        job: in which it takes part; None: in none.
    """

    name: str
    address: str = ""
    version: str = ""
    data: tuple[str, ...] = ()
    seen_s: float = 0.0
    job: str | None = None


@dataclass
class Asked:
    """What a site was asked about a job that waits.

    Attributes:
        at_s: when, by the monotonic clock.
        again: whether it had not answered before.
        reply: its reply, one of `REPLIES`; empty: none yet.
    """

    at_s: float
    again: bool = False
    reply: str = ""


@dataclass
class Active:
    """The process of a job that runs.

    Attributes:
        process: the process.
        giving: hands it the connections of its clients.
        cancelled: who has cancelled it; empty: nobody.
        failed: why it cannot go on; empty: it can.
        restarts: how often each site's process was started again.
        left_out: the sites without which it goes on.
    """

    process: ForkedProcess
    giving: socket.socket
    cancelled: str = ""
    failed: str = ""
    restarts: Counter[str] = field(default_factory=Counter)
    left_out: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Options:
    """How a federation is served.

    Attributes:
        address: where it listens, HOST:PORT.
        certificate, key, ca: its TLS files (PEM).
        crl: the list of revoked certificates; None: there is none.
        modules: the modules whose code an experiment may name.
        at_once: how many jobs may run at a time, each with other sites.
        start_limit_s: how long a job waits for the sites with which it begins.
    """

    address: str
    certificate: Path
    key: Path
    ca: Path
    crl: Path | None = None
    modules: Sequence[str] = ()
    at_once: int = 1
    start_limit_s: float = 600.0


@dataclass
class Federation:
    """The server of the federation in a folder; run it inside a with statement.

    Args:
        folder: its ledger, its jobs and their runs.
        options: see `Options`.
        processes: starts the processes of jobs.

    Attributes:
        publish: is called at each turn, and may show what there is; None: nothing is.
        stopped: why the queue waits; empty: it does not.
    """

    folder: Path
    options: Options
    processes: ForkServer
    sites: dict[str, Site] = field(default_factory=dict)
    active: dict[str, Active] = field(default_factory=dict)
    asked: dict[str, dict[str, Asked]] = field(default_factory=dict)
    publish: Callable[[Federation], None] | None = None

    def __post_init__(self) -> None:
        one = self.options
        self._resources = contextlib.ExitStack()
        self._offered: dict[str, tuple[int, str]] = {}
        self._roles: dict[str, str | None] = {}
        self._log = ClientLog(log, LOG_LINES)
        self.stopped = ""
        self._nobody, closed = pair()
        closed.close()
        self.listener = Listener(
            one.address,
            CODEC,
            tls=ServerTLS(one.certificate, one.key, one.ca, crl=one.crl),
            limits=Limits(max_message_bytes=8 << 20),
            route=self._route,
        )

    def __enter__(self) -> Federation:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._resources.enter_context(hold(self.folder / "lock"))
        self.ledger = Ledger(self.folder)
        self.listener.start()
        self._resources.callback(self.listener.close)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for active in self.active.values():
            active.process.terminate()
        for active in self.active.values():
            active.process.wait()
            active.giving.close()
        self._nobody.close()
        self._resources.close()

    def run(self) -> None:
        """Serve, until an exception such as KeyboardInterrupt ends it."""
        log.info("listening", "listening on {address}", address=self.listener.address)
        while True:
            event = self.listener.next_event(TICK_S)
            try:
                while event is not None:
                    self._handle(event)
                    event = self.listener.next_event(0.0)
                self._follow()
                self._schedule()
                self._log.flush()
                self.stopped = ""
            except (RunError, OSError) as error:  # until the disk has room again
                reason = _reason(error)
                if reason != self.stopped:
                    log.warning("queue_waits", "{reason}; the queue waits", reason=reason)
                self.stopped = reason
                time.sleep(DISK_S)
            if self.publish is not None:
                self.publish(self)

    # --- jobs --------------------------------------------------------------------------------

    def job_folder(self, job: str) -> Path:
        """Return the folder of a job."""
        return self.folder / "jobs" / job

    def _experiment(self, job: str) -> tuple[int, str]:
        """Return the clients and the text of an experiment, which was checked on submission."""
        if job not in self._offered:
            path = self.job_folder(job) / "experiment.yaml"
            text = path.read_text(encoding="utf-8")
            experiment = Experiment.parse(text, str(path), modules=self.options.modules)
            self._offered[job] = experiment.clients or 0, text
        return self._offered[job]

    def _schedule(self) -> None:
        """Offer the jobs that wait to free sites, and start each that enough sites accept."""
        for job in self.ledger.open.values():
            if job.state == RUNNING and job.id not in self.active:
                self._start_process(job)
        waiting = (job for job in self.ledger.open.values() if job.state == QUEUED)
        hopeful = 0
        for job in list(itertools.islice(waiting, MOST_OFFERED)):
            if len(self.active) >= self.options.at_once or hopeful == LOOKS_AHEAD:
                return
            self._offer(job)
            chosen = self._chosen(job)
            if chosen:
                self._begin(job, chosen)
            else:
                hopeful += self._may_begin_soon(job)

    def _may_take_part(self, job: Job, site: Site) -> bool:
        asked = not job.asked or site.name in job.asked
        return asked and site.name not in self.ledger.removed

    def _may_begin_soon(self, job: Job) -> bool:
        """Return whether enough sites have accepted a job, or are to reply yet."""
        asked, clients = self.asked.get(job.id, {}), self._experiment(job.id)[0]
        left = 0
        for site in self.sites.values():
            if site.address and self._may_take_part(job, site):
                one = asked.get(site.name)
                left += one is None or one.reply == ACCEPTED or not (one.reply or one.again)
        return left >= clients

    def _offer(self, job: Job) -> None:
        asked, now_s = self.asked.setdefault(job.id, {}), time.monotonic()
        for site in self.sites.values():
            if not site.address or site.job is not None or not self._may_take_part(job, site):
                continue
            before = asked.get(site.name)
            if before is not None:
                waits_s = AGAIN_S if before.reply else OFFER_S
                if before.reply in (ACCEPTED, REFUSED) or now_s - before.at_s < waits_s:
                    continue
            text = self._experiment(job.id)[1]
            if self._send(site.name, JobOffer(job.id, text, job.digest, job.operator)):
                asked[site.name] = Asked(now_s, before is not None)

    def _chosen(self, job: Job) -> tuple[str, ...]:
        """Return the sites with which a job begins, the first ones by name; empty: it waits."""
        asked, clients = self.asked.get(job.id, {}), self._experiment(job.id)[0]
        accepted = sorted(
            name
            for name, one in asked.items()
            if one.reply == ACCEPTED and self.sites[name].job is None and self.sites[name].address
        )
        return tuple(accepted[:clients]) if len(accepted) >= clients else ()

    def _begin(self, job: Job, sites: tuple[str, ...]) -> None:
        log.info("job_begins", "job {job} begins at {sites} sites", job=job.id, sites=len(sites))
        self.ledger.add("server", "begin", job=job.id, sites=list(sites))
        self.asked.pop(job.id, None)
        self._start_process(job)

    def _start_process(self, job: Job) -> None:
        """Start a job's process, which begins its run or goes on with it, and tell its sites."""
        folder, one = self.job_folder(job.id), self.options
        facts = {
            "address": self.listener.address,
            "tls": {"certificate": str(one.certificate), "key": str(one.key), "ca": str(one.ca)},
            "crl": None if one.crl is None else str(one.crl),
            "sites": list(job.sites),
            "modules": list(one.modules),
            "start_limit_s": one.start_limit_s,
        }
        write_document(folder / "process.json", facts)
        giving, taking = pair()
        with taking, (folder / "log").open("ab") as to, open(os.devnull, "rb") as nothing:
            files = nothing.fileno(), to.fileno(), to.fileno()
            words = ["job-server", str(folder), str(taking.fileno())]
            process = self.processes.popen("fedmx", words, files, (taking.fileno(),))
        self.active[job.id] = Active(process, giving)
        for number, name in enumerate(job.sites):
            if name in self.sites and name not in self.ledger.removed:
                self.sites[name].job = job.id
                self._send(name, JobStart(job.id, number))

    def _follow(self) -> None:
        """Take note of the processes that have ended."""
        for name, active in list(self.active.items()):
            code = active.process.poll()
            if code is None:
                continue
            if active.cancelled:
                self._end(name, active.cancelled, CANCELLED, "cancelled")
            elif active.failed:
                self._end(name, "server", FAILED, active.failed)
            elif code == 0:
                self._end(name, "server", DONE, "")
            else:
                self._end(name, "server", FAILED, last_line(self.job_folder(name) / "log", code))
            del self.active[name]
            active.giving.close()

    def _end(self, name: str, who: str, state: str, reason: str) -> None:
        self.ledger.add(who, "end", job=name, state=state, reason=reason)
        text = f": {reason}" if reason else ""
        log.info("job_over", "job {job} is {state}{text}", job=name, state=state, text=text)
        self.asked.pop(name, None)
        self._offered.pop(name, None)
        for site in self.sites.values():
            if site.job == name:
                site.job = None
                self._send(site.name, JobStop(name))

    def leave_out(self, job: Job, site: str, reason: str) -> None:
        """Let a job go on without a site; if it cannot, end it."""
        active, number = self.active[job.id], job.sites.index(site)
        answer: Mapping[str, Any] = {}
        if site in active.left_out:
            return
        active.left_out.add(site)
        for run in (self.job_folder(job.id) / "runs").glob("[!.]*"):
            with contextlib.suppress(FedmxError):  # it has ended
                answer = ask(run, {"command": "exclude", "client": number})
        if number not in answer.get("excluded", ()) and not active.failed:
            active.failed = f"{site}: {reason}"
            active.process.terminate()

    def _after_failure(self, site: Site, job: str, code: int, reason: str) -> None:
        """Start a site's process for a job again, or let the job go on without the site."""
        active = self.active.get(job)
        if site.job != job or active is None or not code:
            return
        again = code != CANNOT_TAKE_PART and active.restarts[site.name] < MOST_RESTARTS
        log.warning(
            "site_failed", "{site}, job {job}: {reason}", site=site.name, job=job, reason=reason
        )
        if again:
            active.restarts[site.name] += 1
            number = self.ledger.jobs[job].sites.index(site.name)
            self._send(site.name, JobStart(job, number))
        else:
            site.job = None
            self.leave_out(self.ledger.jobs[job], site.name, reason)

    def _route(self, protocol: str) -> socket.socket | None:
        """Return the process that serves a protocol; called in the listener's thread."""
        if not protocol.startswith(JOB_PROTOCOL):
            return None
        active = self.active.get(protocol.removeprefix(JOB_PROTOCOL))
        return self._nobody if active is None else active.giving

    # --- events ------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if isinstance(event, Joined):
            self._roles[event.peer] = event.role
            if event.role is None:
                site = self.sites.setdefault(event.peer, Site(event.peer))
                site.address, site.version, site.seen_s = event.address, "", time.time()
        elif isinstance(event, Left):
            site_left = self.sites.get(event.peer)
            if site_left is not None:
                site_left.address = ""
                for asked in self.asked.values():
                    asked.pop(event.peer, None)
                self._log.info(
                    event.peer,
                    "site_left",
                    "{site} left: {reason}",
                    site=event.peer,
                    reason=event.reason,
                )
        elif isinstance(event, ConnectionRejected):
            who = event.peer or event.address
            machine = event.address.rpartition(":")[0]  # whichever names it claims
            self._log.warning(machine, "rejected", "{who}: {reason}", who=who, reason=event.reason)
        elif isinstance(event, CertificatesRenewed | CertificatesRefused | CertificateExpires):
            log_certificates(log, event)
        elif isinstance(event, Received):
            role = self._roles.get(event.peer)
            if role in (OPERATOR, READER):
                self._answer(event.peer, role, event.message)
            elif event.peer in self.sites:
                self._handle_site(self.sites[event.peer], event.message)
            else:
                self.listener.disconnect(event.peer, "its role is unknown", final=True)

    def _handle_site(self, site: Site, message: object) -> None:
        site.seen_s = time.time()
        if isinstance(message, Presence) and message.version and not site.version:
            site.version = message.version[:MOST_BYTES]
            site.data = tuple(one[:MOST_BYTES] for one in message.data[:MOST_DATA])
            self._log.info(
                site.name,
                "site_joined",
                "{site} joined with fedmx {version}",
                site=site.name,
                version=site.version,
            )
            self._resume_at(site, message.jobs)
        elif isinstance(message, JobReply) and message.reply in REPLIES:
            asked = self.asked.get(message.job, {}).get(site.name)
            if asked is not None and not asked.reply:
                job, reason = self.ledger.jobs[message.job], message.reason[:MOST_BYTES]
                if job.replies.get(site.name) != told(message.reply, reason):
                    said = {"reply": message.reply, "reason": reason}
                    self.ledger.add(site.name, "reply", job=job.id, **said)
                asked.reply = message.reply
                self._fail_if_refused(job)
        elif isinstance(message, JobEnded):
            self._after_failure(site, message.job, message.code, message.reason[:MOST_BYTES])
        elif isinstance(message, Submit | Order):
            reason = f"{site.name} is a site; give orders with an operator's certificate"
            self.listener.disconnect(site.name, reason, final=True)
        else:
            reason = f"{type(message).__name__} is not what a site sends now"
            self.listener.disconnect(site.name, reason, final=True)

    def _resume_at(self, site: Site, jobs: tuple[str, ...]) -> None:
        """Let a site that is back take part again in the job that it belongs to."""
        for name in jobs[:SHOWN]:
            job = self.ledger.jobs.get(name)
            if job is None or job.state != RUNNING or site.name not in job.sites:
                self._send(site.name, JobStop(name))
        for name, active in self.active.items():
            job = self.ledger.jobs[name]
            barred = self.ledger.removed.keys() | active.left_out
            if site.name in job.sites and site.name not in barred:
                site.job = name
                if name not in jobs:
                    self._send(site.name, JobStart(name, job.sites.index(site.name)))

    def _fail_if_refused(self, job: Job) -> None:
        """End a job that waits for sites which all refuse it."""
        if job.state != QUEUED or not job.asked:
            return
        clients = self._experiment(job.id)[0]
        asked = self.asked.get(job.id, {})
        refused = {name for name, one in asked.items() if one.reply == REFUSED}
        if len(set(job.asked) - refused) < clients:
            said = "; ".join(f"{name} {job.replies[name]}" for name in sorted(refused))
            self._end(job.id, "server", FAILED, said)

    def _send(self, peer: str, message: object) -> bool:
        with contextlib.suppress(NetworkError):
            self.listener.send(peer, message)
            return True
        return False

    # --- operators ---------------------------------------------------------------------------

    def _answer(self, peer: str, role: str, message: object) -> None:
        try:
            if isinstance(message, Submit):
                content: Any = self._submit(peer, role, message)
            elif isinstance(message, Order):
                changes, carry_out = ORDERS.get(message.name, (True, _unknown))
                if changes:
                    _check_role(peer, role)
                content = carry_out(self, peer, message)
            else:
                raise FedmxError("a message that an operator does not send")
            answer = Answered("", json.dumps(content))
        except (FedmxError, NetworkError, OSError) as error:
            answer = Answered(" ".join(_reason(error).split()), "null")
        self._send(peer, answer)

    def _submit(self, peer: str, role: str, message: Submit) -> Mapping[str, Any]:
        _check_role(peer, role)
        experiment = Experiment.parse(
            message.experiment, "the experiment", modules=self.options.modules
        )
        clients, asked = experiment.clients, list(dict.fromkeys(message.sites))
        for site in asked:
            check_identity(site)
        if asked and len(asked) < (clients or 0):
            raise FedmxError(f"clients: {clients}, and it is offered to {len(asked)} sites")
        name = self.ledger.next_id()
        folder = self.job_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        write_text_durably(folder / "experiment.yaml", experiment.to_yaml())
        self.ledger.add(
            peer,
            "submit",
            job=name,
            name=experiment.name,
            digest=experiment.digest(),
            asked=asked,
        )
        return {"job": name}


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}{advice_on(error)}"
    return str(error)


def _check_role(peer: str, role: str) -> None:
    if role != OPERATOR:
        raise FedmxError(f"{peer} may read, and not give orders; use an operator's certificate")


def _unknown(federation: Federation, peer: str, order: Order) -> Any:
    raise FedmxError(f"there is no order {order.name[:40]!r}")


def _job(federation: Federation, name: str) -> Job:
    job = federation.ledger.jobs.get(name)
    if job is None:
        raise FedmxError(f"there is no job {name[:40]!r}; fedmx jobs lists them")
    return job


def _jobs(federation: Federation, peer: str, order: Order) -> Any:
    newest = list(federation.ledger.jobs.values())[-SHOWN:]
    return {"jobs": [asdict(one) for one in newest], "all": len(federation.ledger.jobs)}


def states_of_sites(federation: Federation) -> list[dict[str, Any]]:
    """Return the sites with what each does now, as JSON can hold them."""
    found = []
    for one in federation.sites.values():
        removed = federation.ledger.removed.get(one.name)
        state = f"in job {one.job}" if one.job else "free" if one.address else "away"
        found.append({**asdict(one), "removed": removed, "state": "removed" if removed else state})
    return found


def _one_job(federation: Federation, peer: str, order: Order) -> Any:
    return asdict(_job(federation, order.about))


def _sites(federation: Federation, peer: str, order: Order) -> Any:
    return states_of_sites(federation)


def _cancel(federation: Federation, peer: str, order: Order) -> Any:
    job = _job(federation, order.about)
    if job.state in OVER:
        raise FedmxError(f"job {job.id} is {job.state} already")
    active = federation.active.get(job.id)
    if active is None:
        federation._end(job.id, peer, CANCELLED, "cancelled")
    else:
        active.cancelled = peer
        active.process.terminate()
    return {"job": job.id}


def _read_log(federation: Federation, peer: str, order: Order) -> Any:
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


def _archive(federation: Federation, peer: str, order: Order) -> Any:
    """Write the archive of a job's run folder, and tell what identifies it."""
    job = _job(federation, order.about)
    if job.state not in OVER:
        raise FedmxError(f"job {job.id} is {job.state}; fetch it when it is over")
    folder = federation.job_folder(job.id)
    archive = folder / f"{job.id}.tar"
    if not any((folder / "runs").glob("[!.]*")):
        raise FedmxError(f"job {job.id} has no run folder; it is {job.state}: {job.reason}")
    if not archive.exists():
        temporary = archive.with_suffix(".part")
        try:
            with tarfile.open(temporary, "w") as tar:
                for one in sorted((folder / "runs").glob("*")):
                    tar.add(one, one.name, filter=_plain)
            os.replace(temporary, archive)
        finally:
            temporary.unlink(missing_ok=True)
    size = archive.stat().st_size
    return {"file": archive.name, "bytes": size, "sha256": sha256_of(archive)}


def _send(federation: Federation, peer: str, order: Order) -> Any:
    """Send the archive, which the operator expects by now."""
    job = _job(federation, order.about)
    archive = federation.job_folder(job.id) / f"{job.id}.tar"
    if not archive.exists():
        raise FedmxError(f"job {job.id} has no archive")
    federation.listener.send_file(peer, archive)
    return {}


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    secret = Path(member.name).name in (SECRET, "lock")
    return member if (member.isfile() and not secret) or member.isdir() else None


def _remove(federation: Federation, peer: str, order: Order) -> Any:
    check_identity(order.about)
    federation.ledger.add(peer, "remove", site=order.about, reason=f"by {peer}")
    for name in list(federation.active):
        job = federation.ledger.jobs[name]
        if order.about in job.sites:
            federation.leave_out(job, order.about, f"was removed by {peer}")
    site = federation.sites.get(order.about)
    if site is not None and site.job is not None:
        federation._send(site.name, JobStop(site.job))
        site.job = None
    return {"site": order.about}


def _add(federation: Federation, peer: str, order: Order) -> Any:
    if order.about not in federation.ledger.removed:
        raise FedmxError(f"{order.about[:64]} was not removed")
    federation.ledger.add(peer, "add", site=order.about)
    return {"site": order.about}


ORDERS: Mapping[str, tuple[bool, Callable[[Federation, str, Order], Any]]] = {
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


def last_line(path: Path, code: int) -> str:
    """Return the last line of a process's log, or its exit code."""
    with contextlib.suppress(OSError):
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 4096, 0))
            lines = file.read().decode(errors="replace").split("\n")
        for line in reversed(lines):
            if line.strip():
                return line.strip()[:500]
    return f"its process ended with code {code}"
