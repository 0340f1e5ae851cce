"""The server of a federation: it keeps the queue, asks sites, and starts a process for each job."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.connection_log import log_certificates
from fedmx.deployment.client_log import ClientLog
from fedmx.experiment.sections import LOG_LINES
from fedmx.federation.archives import Archives
from fedmx.federation.job_process import JobProcess, Options, last_line
from fedmx.federation.ledger import CANCELLED, DONE, FAILED, RUNNING, Job, Ledger
from fedmx.federation.messages import (
    CANNOT_TAKE_PART,
    CODEC,
    JOB_PROTOCOL,
    OPERATOR,
    READER,
    REPLIES,
    JobEnded,
    JobReply,
    JobStart,
    JobStop,
    Order,
    Presence,
    Submit,
)
from fedmx.federation.offers import MOST_BYTES, Offers, Site
from fedmx.federation.orders import SHOWN, Sender, answer, answered, reason_of
from fedmx.fork_server import ForkServer
from fedmx.log import Log
from fedmx.run.durable import RunError
from fedmx.run.lock import hold
from fedmx.version import __version__, serves
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

log = Log("fedmx.federation")

TICK_S = 0.2
MOST_EVENTS = 1000  # before jobs have their turn: a peer that floods the server holds none up
DISK_S = 1.0  # before it is tried again to write
MOST_RESTARTS = 3  # of a site's process for a job
MOST_DATA = 100  # names of a site's data
MOST_JOBS = 100  # of a site at a time


@dataclass
class Federation:
    """The server of the federation in a folder; run it inside a with statement.

    Args:
        folder: its ledger, its jobs and their runs.
        options: see `Options`.
        processes: starts the processes of jobs.

    Attributes:
        sites: those that are connected, or were.
        active: the processes of the jobs that run.
        archives: makes the archives that operators fetch.
        publish: is called at each turn, and may show what there is; None: nothing is.
        stopped: why the queue waits; empty: it does not.
    """

    folder: Path
    options: Options
    processes: ForkServer
    sites: dict[str, Site] = field(default_factory=dict)
    active: dict[str, JobProcess] = field(default_factory=dict)
    archives: Archives = field(default_factory=Archives)
    publish: Callable[[Federation], None] | None = None

    def __post_init__(self) -> None:
        one = self.options
        self._resources = contextlib.ExitStack()
        self._senders: dict[str, Sender] = {}
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
            several={OPERATOR, READER},
        )

    def __enter__(self) -> Federation:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._resources.enter_context(hold(self.folder / "lock"))
        self.ledger = Ledger(self.folder)
        jobs, modules = self.folder / "jobs", self.options.modules
        self._offers = Offers(jobs, modules, self.ledger, self.sites, self.send, self._fail)
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
            try:
                wait_s = TICK_S
                for _ in range(MOST_EVENTS):
                    event = self.listener.next_event(wait_s)
                    if event is None:
                        break
                    self._handle(event)
                    wait_s = 0.0
                for peer, made in self.archives.made():
                    self.send(peer, answered(made))
                self._follow()
                self._schedule()
                self._log.flush()
                self.stopped = ""
            except (RunError, OSError) as error:  # until the disk has room again
                reason = reason_of(error)
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

    def _schedule(self) -> None:
        """Start each job that enough sites have accepted, and those that ran before."""
        for job in self.ledger.open.values():
            if job.state == RUNNING and job.id not in self.active:
                self._start_process(job)
        for job, sites in self._offers.ready(lambda: len(self.active) < self.options.at_once):
            log.info(
                "job_begins", "job {job} begins at {sites} sites", job=job.id, sites=len(sites)
            )
            shared = any(self.sites[name].most_jobs > 1 for name in sites)
            self.ledger.add("server", "begin", job=job.id, sites=list(sites), shared=shared)
            self._offers.begun(job)
            self._start_process(job)

    def _start_process(self, job: Job) -> None:
        """Start a job's process, which begins its run or goes on with it, and tell its sites."""
        self.active[job.id] = JobProcess.start(
            self.job_folder(job.id), self.processes, job, self.options, self.listener.address
        )
        for name in job.sites:
            if name in self.sites and name not in self.ledger.removed:
                self._take_part(self.sites[name], job)

    def _take_part(self, site: Site, job: Job) -> None:
        """Let a site begin, or go on, with its part in a job."""
        if job.id not in site.jobs:
            site.jobs.append(job.id)
        self.send(site.name, JobStart(job.id, job.sites.index(site.name)))

    def _follow(self) -> None:
        """Take note of the processes that have ended."""
        for name, active in list(self.active.items()):
            code = active.poll()
            if code is None:
                continue
            if active.cancelled:
                self.end(name, active.cancelled, CANCELLED, "cancelled")
            elif active.failed:
                self.end(name, "server", FAILED, active.failed)
            elif code == 0:
                self.end(name, "server", DONE, "")
            else:
                self.end(name, "server", FAILED, last_line(active.folder / "log", code))
            del self.active[name]
            active.giving.close()

    def end(self, name: str, who: str, state: str, reason: str) -> None:
        """End a job that has no process, or none any more."""
        self.ledger.add(who, "end", job=name, state=state, reason=reason)
        text = f": {reason}" if reason else ""
        log.info("job_over", "job {job} is {state}{text}", job=name, state=state, text=text)
        self._offers.begun(self.ledger.jobs[name])
        for site in self.sites.values():
            if name in site.jobs:
                site.jobs.remove(name)
                self.send(site.name, JobStop(name))

    def _fail(self, name: str, reason: str) -> None:
        self.end(name, "server", FAILED, reason)

    def _after_failure(self, site: Site, job: str, code: int, reason: str) -> None:
        """Start a site's process for a job again, or let the job go on without the site."""
        active = self.active.get(job)
        if job not in site.jobs or active is None or not code:
            return
        again = code != CANNOT_TAKE_PART and active.restarts[site.name] < MOST_RESTARTS
        log.warning(
            "site_failed", "{site}, job {job}: {reason}", site=site.name, job=job, reason=reason
        )
        if again:
            active.restarts[site.name] += 1
            self._take_part(site, self.ledger.jobs[job])
        else:
            site.jobs.remove(job)
            self.send(site.name, JobStop(job))
            number = self.ledger.jobs[job].sites.index(site.name)
            active.leave_out(site.name, number, reason)

    def _route(self, protocol: str) -> socket.socket | None:
        """Return the process that serves a protocol; called in the listener's thread."""
        if not protocol.startswith(JOB_PROTOCOL):
            return None
        active = self.active.get(protocol.removeprefix(JOB_PROTOCOL))
        return self._nobody if active is None else active.giving

    # --- events ------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if isinstance(event, Joined):
            if event.role is None:
                site = self.sites.setdefault(event.peer, Site(event.peer))
                site.address, site.version, site.seen_s = event.address, "", time.time()
            elif event.role in (OPERATOR, READER):
                self._senders[event.peer] = Sender(event.peer, event.identity, event.role)
        elif isinstance(event, Left):
            if self._senders.pop(event.peer, None) is None and event.peer in self.sites:
                self.sites[event.peer].address = ""
                self._offers.left(event.peer)
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
            if event.peer in self._senders:
                found = answer(self, self._senders[event.peer], event.message)
                if found is not None:
                    self.send(event.peer, found)
            elif event.peer in self.sites:
                self._handle_site(self.sites[event.peer], event.message)
            else:
                self.listener.disconnect(event.peer, "its role is unknown", final=True)

    def _handle_site(self, site: Site, message: object) -> None:
        site.seen_s = time.time()
        if isinstance(message, Presence) and message.version and not site.version:
            if not serves(message.version):
                reason = (
                    f"{site.name} has fedmx {message.version[:MOST_BYTES]}, and the federation has "
                    f"{__version__}, which serves this minor version and the one before; install "
                    "that of the federation"
                )
                self.listener.disconnect(site.name, reason, final=True)
                return
            site.version = message.version[:MOST_BYTES]
            site.data = tuple(one[:MOST_BYTES] for one in message.data[:MOST_DATA])
            site.most_jobs = min(max(message.most_jobs, 1), MOST_JOBS)
            self._log.info(
                site.name,
                "site_joined",
                "{site} joined with fedmx {version}",
                site=site.name,
                version=site.version,
            )
            self._resume_at(site, message.jobs)
        elif isinstance(message, JobReply) and message.reply in REPLIES:
            self._offers.reply(site, message)
        elif isinstance(message, JobEnded):
            self._after_failure(site, message.job, message.code, message.reason[:MOST_BYTES])
        elif isinstance(message, Submit | Order):
            reason = f"{site.name} is a site; give orders with an operator's certificate"
            self.listener.disconnect(site.name, reason, final=True)
        else:
            reason = f"{type(message).__name__} is not what a site sends now"
            self.listener.disconnect(site.name, reason, final=True)

    def _resume_at(self, site: Site, jobs: tuple[str, ...]) -> None:
        """Let a site that is back take part again in the jobs that it belongs to."""
        for name in jobs[:SHOWN]:
            job = self.ledger.jobs.get(name)
            if job is None or job.state != RUNNING or site.name not in job.sites:
                self.send(site.name, JobStop(name))
        for name, active in self.active.items():
            job = self.ledger.jobs[name]
            barred = self.ledger.removed.keys() | active.left_out
            if site.name not in job.sites or site.name in barred:
                continue
            if name not in jobs:
                self._take_part(site, job)
            elif name not in site.jobs:
                site.jobs.append(name)

    def send(self, peer: str, message: object) -> bool:
        """Send a message; return whether its receiver is connected."""
        with contextlib.suppress(NetworkError):
            self.listener.send(peer, message)
            return True
        return False
