"""A site of a federation: it stays, answers offers by its policy, and starts a job's process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fedmx.client.policy import Policy, refused
from fedmx.client.releases import Releases
from fedmx.components.text import first_line
from fedmx.connection_log import ConnectionLog
from fedmx.deployment.systemd import notify
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.federation.author import author_of
from fedmx.federation.job_process import last_line
from fedmx.federation.messages import (
    ACCEPTED,
    CANNOT_TAKE_PART,
    CODEC,
    NOT_NOW,
    REFUSED,
    JobEnded,
    JobOffer,
    JobReply,
    JobStart,
    JobStop,
    Presence,
    protocol_of,
)
from fedmx.fork_server import ForkedProcess, ForkServer
from fedmx.log import Log
from fedmx.run.durable import cannot_write, read_document, write_document
from fedmx.run.lock import hold
from fedmx.version import __version__
from layers.compute.errors import ComputeError
from layers.logic.errors import LogicError
from layers.network import (
    ClientTLS,
    Connected,
    Connector,
    Disconnected,
    GaveUp,
    NotConnected,
    Received,
)

log = Log("fedmx.site")

TICK_S = 0.2
MOST_OFFERS = 100  # that wait until the site may take part in one job more
MOST_KEPT = 100  # jobs whose logs are kept, and whose acceptances are
SIGN_OF_LIFE = "connected-{}"  # with the name of the site
SIGN_OF_LIFE_S = 10.0
JOB = re.compile(r"[0-9]{6,12}")
CANNOT_START = 1  # the exit code of a process that could not be started, and is tried again
COMMAND_S = 30.0  # for the command that says whether the site is available


@dataclass(frozen=True)
class SiteOptions:
    """What a site brings.

    Attributes:
        address: of the federation, HOST:PORT.
        name: in its certificate.
        tls: its TLS files.
        folder: its state: the memory of hooks, what it has spent, and the logs of jobs.
        policy: the file of its policy; None: it accepts any experiment.
        modules: its own modules that an experiment may name.
        available_if: a command that ends with 0 while the site is available; None: it always is.
    """

    address: str
    name: str
    tls: ClientTLS
    folder: Path
    policy: Path | None = None
    modules: tuple[str, ...] = ()
    available_if: str | None = None


class Unavailable(FedmxError):
    """The site takes part later."""


class StayingSite:
    """A site that takes part in job after job; run it inside a with statement.

    Args:
        options: see `SiteOptions`.
        processes: starts the processes of jobs.
    """

    def __init__(self, options: SiteOptions, processes: ForkServer) -> None:
        self._options = options
        self._processes = processes
        self._policy = Policy() if options.policy is None else Policy.of(options.policy)
        self._unsigned = self._policy.model_copy(update={"authors": None})  # the rest of it
        self._running: dict[str, ForkedProcess] = {}
        # Both wait until the site may take part in one job more.
        self._offers: dict[str, JobOffer] = {}
        self._starts: dict[str, JobStart] = {}
        self._began_s: dict[str, float] = {}
        self._killed: dict[str, str] = {}  # jobs whose process exceeded a limit, and which
        self._resources = contextlib.ExitStack()
        self._connected = False
        self._told_s = -SIGN_OF_LIFE_S
        (options.folder / "jobs").mkdir(parents=True, exist_ok=True)
        self._network = Connector(options.address, options.name, CODEC, tls=options.tls)
        self._connection_log = ConnectionLog(log, self._network)

    def __enter__(self) -> StayingSite:
        # Several jobs share the files of the site, and two sites must not.
        self._resources.enter_context(
            hold(self._options.folder / f"site-{self._options.name}.lock")
        )
        self._resources.callback(self._tell, False)
        self._network.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()
        self._network.close()
        self._resources.close()

    def run(self) -> None:
        """Stay, until an exception such as KeyboardInterrupt ends it.

        Raises:
            FedmxError: the federation refuses this site.
        """
        while True:
            event = self._network.next_event(TICK_S)
            self._connection_log.handle(event)
            if isinstance(event, Connected):
                self._tell(True)
                jobs, data = (*self._running, *self._starts), tuple(sorted(self._policy.local))
                self._send(Presence(__version__, jobs, data, self._policy.jobs))
            elif isinstance(event, Disconnected):
                self._tell(False)
            elif isinstance(event, GaveUp):
                raise FedmxError(event.reason)
            elif isinstance(event, Received):
                self._handle(event.message)
            self._follow()
            if self._connected and time.monotonic() - self._told_s >= SIGN_OF_LIFE_S:
                self._tell(True)
            while self._starts and len(self._running) < self._policy.jobs:
                self._start(self._starts.pop(next(iter(self._starts))))
            while self._offers and len(self._running) < self._policy.jobs:
                self._answer(self._offers.pop(next(iter(self._offers))))

    def _tell(self, connected: bool) -> None:
        """Say whether this site is connected: in its file, as a sign of life, and to systemd."""
        path = self._options.folder / SIGN_OF_LIFE.format(self._options.name)
        with contextlib.suppress(OSError):  # a full disk; without a sign, it is not healthy
            if connected:
                path.touch()
            else:
                path.unlink(missing_ok=True)
        if connected is not self._connected:
            where = f"to {self._network.address}"
            notify(f"STATUS={'connected' if connected else 'not connected'} {where}")
        self._connected, self._told_s = connected, time.monotonic()

    def _handle(self, message: object) -> None:
        job = getattr(message, "job", "")
        if JOB.fullmatch(job) is None:  # it becomes part of a file name
            raise FedmxError("the federation names a job by what is not a job's name")
        if isinstance(message, JobOffer):
            if len(self._offers) < MOST_OFFERS:
                self._offers[job] = message
        elif isinstance(message, JobStart) and job not in self._running:
            if self._accepted_path(job).exists():
                self._starts[job] = message
            else:
                log.warning("job_ignored", "job {job} was not accepted here", job=job)
        elif isinstance(message, JobStop):
            self._offers.pop(job, None)
            self._starts.pop(job, None)
            self._accepted_path(job).unlink(missing_ok=True)
            if job in self._running:
                self._running[job].terminate()

    def _answer(self, offer: JobOffer) -> None:
        reply, reason = self._reply(offer)
        log.info(
            "job_offered",
            "job {job} of {operator}: {reply} {reason}",
            job=offer.job,
            operator=offer.operator,
            reply=reply,
            reason=reason,
        )
        self._send(JobReply(offer.job, reply, reason))

    def _reply(self, offer: JobOffer) -> tuple[str, str]:
        try:
            experiment = Experiment.parse(
                offer.experiment, "the experiment", modules=self._options.modules
            )
            if experiment.digest() != offer.digest:
                raise FedmxError("it is another experiment here; use the same version of fedmx")
            self._check_author(offer.experiment, offer.proof)
            releases = Releases(self._options.folder, self._options.name, self._unsigned)
            with contextlib.closing(releases):
                releases.begin(f"job-{offer.job}", offer.experiment)
            self._check_available()
            self._keep(offer)
        except Unavailable as error:
            return NOT_NOW, first_line(error)
        except OSError as error:
            return NOT_NOW, cannot_write(self._options.folder, error)
        except (FedmxError, ComputeError, LogicError) as error:
            return REFUSED, first_line(error)
        return ACCEPTED, ""

    def _keep(self, offer: JobOffer) -> None:
        self._remove_old(self._accepted_path("*"))
        accepted = {"experiment": offer.experiment, "proof": offer.proof.hex()}
        write_document(self._accepted_path(offer.job), accepted)

    def _check_author(self, experiment: str, proof: bytes) -> None:
        if self._policy.authors is None:
            return
        try:
            author = author_of(proof, experiment, self._options.tls.ca)
        except ValueError as error:
            raise refused("authors", str(error)) from None
        if author not in self._policy.authors:
            raise refused("authors", f"{author} is not listed")

    def _check_available(self) -> None:
        if not self._policy.is_open():
            raise Unavailable(f"its hours are {self._policy.hours}")
        command = self._options.available_if
        if command is None:
            return
        try:
            done = subprocess.run(
                command, shell=True, stdin=subprocess.DEVNULL, timeout=COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"its command took more than {COMMAND_S:g} s") from None
        if done.returncode:
            raise Unavailable(f"its command ended with {done.returncode}")

    def _check_again(self, job: str) -> None:
        """Check an accepted job against the policy, which may be another one by now."""
        accepted = read_document(self._accepted_path(job)).values
        text, modules = accepted["experiment"], self._options.modules
        self._check_author(text, bytes.fromhex(accepted["proof"]))
        self._unsigned.check(Experiment.parse(text, "the experiment", modules=modules))

    def _start(self, start: JobStart) -> None:
        try:
            self._check_again(start.job)
            self._start_process(start)
        except (FedmxError, ComputeError, LogicError) as error:
            self._end(start.job, CANNOT_TAKE_PART, first_line(error))
        except OSError as error:
            self._end(start.job, CANNOT_START, cannot_write(self._options.folder, error))

    def _start_process(self, start: JobStart) -> None:
        one = self._options
        given = {
            "address": one.address,
            "name": one.name,
            "client": start.client,
            "protocol": protocol_of(start.job),
            "tls": [str(one.tls.certificate), str(one.tls.key), str(one.tls.ca)],
            "memory": str(one.folder),
            "accepted": str(self._accepted_path(start.job)),
            "policy": None if one.policy is None else str(one.policy),
            "modules": list(one.modules),
        }
        log.info(
            "job_begins", "job {job}: begins as client {client}", job=start.job, client=start.client
        )
        self._remove_old(self._log_of("*"))
        with self._log_of(start.job).open("ab") as to, open(os.devnull, "rb") as nothing:
            files = nothing.fileno(), to.fileno(), to.fileno()
            words = ["job-client", json.dumps(given)]
            self._running[start.job] = self._processes.popen("fedmx", words, files)
            self._began_s[start.job] = time.monotonic()

    def _accepted_path(self, job: str) -> Path:
        """Return the file of an accepted job: its experiment, and the proof of its author.

        It outlives this process.
        """
        return self._options.folder / "jobs" / f"{job}.{self._options.name}.accepted"

    def _log_of(self, job: str) -> Path:
        return self._options.folder / "jobs" / f"{job}.log"

    def _remove_old(self, files: Path) -> None:
        for old in sorted(files.parent.glob(files.name))[:-MOST_KEPT]:
            old.unlink(missing_ok=True)

    def _follow(self) -> None:
        for job, process in list(self._running.items()):
            code = process.poll()
            if code is None and (beyond := self._beyond(job, process.pid)):
                process.kill()
                self._killed[job] = beyond
            if code is not None:
                del self._running[job], self._began_s[job]
                reason = last_line(self._log_of(job), code)
                if job in self._killed:
                    code, reason = CANNOT_TAKE_PART, self._killed.pop(job)
                self._end(job, code, reason)

    def _end(self, job: str, code: int, reason: str) -> None:
        log.info("job_over", "job {job}: {text}", job=job, text=reason)
        self._send(JobEnded(job, code, reason))

    def _beyond(self, job: str, pid: int) -> str:
        """Return which limit of the policy a job's process exceeds; empty: none."""
        most_s, most_mib = self._policy.job_seconds, self._policy.job_megabytes
        if most_s is not None and time.monotonic() - self._began_s[job] > most_s:
            return f"its policy, job_seconds: it took more than {most_s:g} s"
        if most_mib is not None:
            with contextlib.suppress(OSError):  # it has just ended
                pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
                if pages * resource.getpagesize() > most_mib << 20:
                    return f"its policy, job_megabytes: it used more than {most_mib} MiB"
        return ""

    def _send(self, message: object) -> None:
        with contextlib.suppress(NotConnected):  # the next `Presence` says what runs here
            self._network.send(message)
