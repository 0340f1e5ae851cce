"""The closed table of messages between a federation's server, its sites and its operators."""

from __future__ import annotations

from dataclasses import dataclass

from layers.network import MessageCodec

MOST_BYTES = 4 << 20
MOST_VALUES = 1 << 16

OPERATOR, READER = "operator", "reader"
"""The roles in certificates of operators; a site's has none."""

ACCEPTED, REFUSED, NOT_NOW = "accepted", "refused", "not now"
REPLIES = (ACCEPTED, REFUSED, NOT_NOW)
CANNOT_TAKE_PART = 2
"""The exit code of a site's process that would fail again."""


@dataclass(frozen=True)
class Presence:
    """Up, first, from a site.

    Attributes:
        version: of fedmx.
        jobs: the jobs in which it takes part, whose processes it has.
        data: the names of its local data.
        most_jobs: in how many jobs it takes part at a time.
    """

    version: str
    jobs: tuple[str, ...]
    data: tuple[str, ...]
    most_jobs: int


@dataclass(frozen=True)
class JobOffer:
    """Down: asks whether a site takes part in a job.

    Attributes:
        job: its name.
        experiment: the experiment file's resolved text.
        digest: of everything in the experiment that determines the result.
        operator: who submitted it.
        proof: that its author has signed it, see `fedmx.federation.author`.
    """

    job: str
    experiment: str
    digest: str
    operator: str
    proof: bytes


@dataclass(frozen=True)
class JobReply:
    """Up: whether a site takes part in a job, one of `REPLIES`, and why not."""

    job: str
    reply: str
    reason: str


@dataclass(frozen=True)
class JobStart:
    """Down: a site takes part in a job now, as this number of its clients."""

    job: str
    client: int


@dataclass(frozen=True)
class JobStop:
    """Down: a job has ended, or goes on without this site."""

    job: str


@dataclass(frozen=True)
class JobEnded:
    """Up: a site's process for a job has ended.

    Attributes:
        job: its name.
        code: the exit code.
        reason: the last line of its log.
    """

    job: str
    code: int
    reason: str


@dataclass(frozen=True)
class Submit:
    """Up, from an operator: puts an experiment into the queue.

    Attributes:
        experiment: the experiment file's resolved text.
        sites: which sites it is offered to; empty: all.
        proof: that the operator has signed it, see `fedmx.federation.author`.
    """

    experiment: str
    sites: tuple[str, ...]
    proof: bytes


@dataclass(frozen=True)
class Order:
    """Up, from an operator: an order or a question.

    Attributes:
        name: one of `fedmx.federation.orders.ORDERS`.
        about: a job or a site; empty: neither.
        offset: the first byte of a log.
    """

    name: str
    about: str
    offset: int


@dataclass(frozen=True)
class Answered:
    """Down: the answer to an operator.

    Attributes:
        error: why it was refused; empty: it was not.
        content: a JSON document.
    """

    error: str
    content: str


_ALL = (Presence, JobOffer, JobReply, JobStart, JobStop, JobEnded, Submit, Order, Answered)

CODEC = MessageCodec(
    dict(enumerate(_ALL, 1)),
    max_bytes=dict.fromkeys(_ALL, MOST_BYTES),
    max_values=dict.fromkeys(_ALL, MOST_VALUES),
)

JOB_PROTOCOL = "fedmx-job-"


def protocol_of(job: str) -> str:
    """Return the protocol (ALPN) by which a job's connections reach its process."""
    return f"{JOB_PROTOCOL}{job}"
