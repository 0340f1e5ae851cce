"""The sites of a federation, what they are asked about jobs that wait, and what they reply."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.components.text import first_line
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.federation.ledger import QUEUED, Job, Ledger, told
from fedmx.federation.messages import ACCEPTED, REFUSED, JobOffer, JobReply, JobStop

OFFER_S = 15.0  # for a site's reply, before the offer counts as not answered
AGAIN_S = 30.0  # after "not now", before a site is asked again
LOOKS_AHEAD = 8  # the jobs that wait for replies at a time; the others wait for them
MOST_OFFERED = 64  # the jobs that wait and are offered, also those that sites do not take
MOST_BYTES = 500  # of a text of a site
EXPERIMENT, PROOF = "experiment.yaml", "proof"  # files of a job


@dataclass
class Site:
    """A site that is connected, or was.

    Attributes:
        name: in its certificate.
        address: of its connection; empty: it is not connected.
        version: of fedmx there.
        data: the names of its local data.
        seen_s: when it was heard last (seconds since 1970).
        jobs: in which it takes part.
        most_jobs: in how many it takes part at a time.
    """

    name: str
    address: str = ""
    version: str = ""
    data: tuple[str, ...] = ()
    seen_s: float = 0.0
    jobs: list[str] = field(default_factory=list)
    most_jobs: int = 1

    @property
    def is_free(self) -> bool:
        """Whether it is connected and may take part in one job more."""
        return bool(self.address) and len(self.jobs) < self.most_jobs


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


class Offers:
    """Offers the jobs that wait to sites that are free.

    Args:
        folder: of the jobs.
        modules: the modules whose code an experiment may name.
        ledger: of the federation.
        sites: by name.
        send: sends a message to a site; returns whether it is connected.
        fail: ends a job as failed, with the reason.
    """

    def __init__(
        self,
        folder: Path,
        modules: Sequence[str],
        ledger: Ledger,
        sites: Mapping[str, Site],
        send: Callable[[str, object], bool],
        fail: Callable[[str, str], None],
    ) -> None:
        self._folder, self._modules = folder, modules
        self._ledger, self._sites, self._send = ledger, sites, send
        self._fail = fail
        self._asked: dict[str, dict[str, Asked]] = {}
        self._offered: dict[str, tuple[int, JobOffer]] = {}

    def ready(self, room: Callable[[], bool]) -> Iterator[tuple[Job, tuple[str, ...]]]:
        """Offer the jobs that wait; yield those that may begin, with the sites that take part.

        Args:
            room: returns whether one job more may run.
        """
        waiting = (job for job in self._ledger.open.values() if job.state == QUEUED)
        hopeful = 0
        for job in list(itertools.islice(waiting, MOST_OFFERED)):
            if not room() or hopeful == LOOKS_AHEAD:
                return
            try:
                self._experiment(job)
            except (FedmxError, FileNotFoundError, UnicodeDecodeError) as error:
                self._fail(job.id, first_line(error))  # of another version, say
                continue
            self._offer(job)
            chosen = self._chosen(job)
            if chosen:
                yield job, chosen
            else:
                hopeful += self._may_begin_soon(job)

    def reply(self, site: Site, said: JobReply) -> None:
        """Take a site's reply, which is one of `REPLIES`, to the ledger, if it was asked.

        The job fails if so many sites have refused that it never begins.
        """
        asked = self._asked.get(said.job, {}).get(site.name)
        if asked is None or asked.reply:
            return
        job, reason = self._ledger.jobs[said.job], said.reason[:MOST_BYTES]
        if job.replies.get(site.name) != told(said.reply, reason):
            self._ledger.add(site.name, "reply", job=job.id, reply=said.reply, reason=reason)
        asked.reply = said.reply
        refused = {name for name, one in self._asked[job.id].items() if one.reply == REFUSED}
        if job.asked and len(set(job.asked) - refused) < self._experiment(job)[0]:
            said_by = (f"{name} {job.replies[name]}" for name in sorted(refused))
            self._fail(job.id, "; ".join(said_by))

    def begun(self, job: Job) -> None:
        """Forget the replies to a job that waits no longer, as do sites that have no part in it."""
        self._offered.pop(job.id, None)
        for name in self._asked.pop(job.id, {}).keys() - {*job.sites}:  # also those yet to reply
            self._send(name, JobStop(job.id))

    def left(self, site: str) -> None:
        """Forget the replies of a site: it is asked again when it is back."""
        for asked in self._asked.values():
            asked.pop(site, None)

    def _experiment(self, job: Job) -> tuple[int, JobOffer]:
        """Return the clients of a job, and its offer, which that version checked that took it."""
        if job.id not in self._offered:
            path = self._folder / job.id / EXPERIMENT
            text = path.read_text(encoding="utf-8")
            experiment = Experiment.parse(text, str(path), modules=self._modules)
            proof = path.with_name(PROOF).read_bytes()
            offer = JobOffer(job.id, text, job.digest, job.operator, proof)
            self._offered[job.id] = experiment.clients or 0, offer
        return self._offered[job.id]

    def _may_take_part(self, job: Job, site: Site) -> bool:
        asked = not job.asked or site.name in job.asked
        return asked and site.name not in self._ledger.removed

    def _may_begin_soon(self, job: Job) -> bool:
        """Return whether enough sites have accepted a job, or are to reply yet."""
        asked, clients = self._asked.get(job.id, {}), self._experiment(job)[0]
        left = 0
        for site in self._sites.values():
            if site.address and self._may_take_part(job, site):
                one = asked.get(site.name)
                left += one is None or one.reply == ACCEPTED or not (one.reply or one.again)
        return left >= clients

    def _offer(self, job: Job) -> None:
        asked, now_s = self._asked.setdefault(job.id, {}), time.monotonic()
        for site in self._sites.values():
            if not site.is_free or not self._may_take_part(job, site):
                continue
            before = asked.get(site.name)
            if before is not None:
                waits_s = AGAIN_S if before.reply else OFFER_S
                if before.reply in (ACCEPTED, REFUSED) or now_s - before.at_s < waits_s:
                    continue
            if self._send(site.name, self._experiment(job)[1]):
                asked[site.name] = Asked(now_s, before is not None)

    def _chosen(self, job: Job) -> tuple[str, ...]:
        """Return the sites with which a job begins, the first ones by name; empty: it waits."""
        asked, clients = self._asked.get(job.id, {}), self._experiment(job)[0]
        accepted = sorted(
            name
            for name, one in asked.items()
            if one.reply == ACCEPTED and self._sites[name].is_free
        )
        return tuple(accepted[:clients]) if len(accepted) >= clients else ()
