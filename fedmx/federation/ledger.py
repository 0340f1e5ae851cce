"""What happened in a federation, line by line; its jobs and its sites follow from it.

Each line of ledger.jsonl says when, who and what, and has the SHA-256 of the line before and of
itself, so that no line can be changed, removed or moved without a trace. A line is on the disk
before anybody is told of it.

A long file is put aside as ledger-000001.jsonl and so on. The first line of the next one continues
the chain, and has what is needed if the files before it are moved away. It is on the disk before
the long file is renamed.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from fedmx.run.durable import DamagedError, RunError, cannot_write, sync_folder
from fedmx.run.records import JsonLines

NAME = "ledger.jsonl"
NEXT = "next-ledger.jsonl"  # until the file before it is put aside
START, CONTINUE = "", "continue"
NEWEST = 100  # lines in memory
MOST_LINES = 100_000  # of a file
QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
State = Literal["queued", "running", "done", "failed", "cancelled"]
OVER = (DONE, FAILED, CANCELLED)


@dataclass
class Job:
    """A job.

    Attributes:
        id: its name in the federation.
        name: of the experiment.
        digest: of the experiment.
        operator: who submitted it.
        submitted: when, in UTC.
        asked: the sites to which it is offered; empty: all.
        state: where it is.
        reason: why it has this state; empty: nothing to say.
        sites: the sites that take part, in the order of their numbers.
        shared: whether one of them may take part in other jobs at the same time.
        replies: what sites said to the offer.
        began: when it began to run, in UTC; empty: not yet.
        ended: when it ended, in UTC; empty: not yet.
    """

    id: str
    name: str
    digest: str
    operator: str
    submitted: str
    asked: tuple[str, ...]
    state: State = "queued"
    reason: str = ""
    sites: tuple[str, ...] = ()
    shared: bool = False
    replies: dict[str, str] = field(default_factory=dict)
    began: str = ""
    ended: str = ""


class Ledger:
    """The ledger of a federation's folder.

    Args:
        folder: of the federation.

    Attributes:
        number: of all jobs.
        jobs: those in the files that are there, by name, in the order in which they came.
        open: those that are not over.
        removed: the sites that may not take part, with the reasons.
        newest: the last lines, without their links of the chain.

    Raises:
        DamagedError: a line was changed, removed or moved, or there are jobs and no ledger.
        RunError: the ledger of a new federation cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lines = JsonLines(self._path)
        self._link = START
        self._length = 0  # lines of the newest file
        self.number = 0
        self.jobs: dict[str, Job] = {}
        self.open: dict[str, Job] = {}
        self.removed: dict[str, str] = {}
        self.newest: deque[Mapping[str, Any]] = deque(maxlen=NEWEST)
        self._aside = 0  # the number of the newest file that was put aside
        before = sorted(folder.glob("ledger-*.jsonl"))
        if not self._path.exists():
            self._begin(bool(before) or any(folder.glob("jobs/*")))
        for path in (*before, self._path):
            self._read(JsonLines(path))

    def _begin(self, is_old: bool) -> None:
        """Make the newest file, or finish what a power cut has interrupted."""
        following = self._path.with_name(NEXT)
        if following.exists():
            _rename(following, self._path)
        elif is_old:
            raise DamagedError(f"{self._path}: is missing; restore the folder from a backup")
        else:
            self._lines.append((), durable=True)

    def _read(self, lines: JsonLines) -> None:
        self._length = 0
        for number, line in enumerate(lines.slots(), 1):
            link = None if line is None else line.pop("chain", None)
            if line is not None and line["what"] == CONTINUE and not self._link:
                self._restore(line)
            if line is None or link != _linked(self._link, line):
                raise DamagedError(
                    f"{lines.path}: line {number} is not what was written after line "
                    f"{number - 1}; restore the folder from a backup"
                )
            self._link, self._length = link, number
            self._take(line)

    def add(self, who: str, what: str, **details: Any) -> None:
        """Write a line, and let the jobs and sites follow it.

        Args:
            who: the operator or the site; "server" for the server itself.
            what: one of the cases of `_take`.
            **details: further values.

        Raises:
            RunError: it cannot be written; nothing has changed.
        """
        if self._length >= MOST_LINES:
            self._put_aside()
        line = {"time": _now(), "who": who, "what": what, **details}
        link = _linked(self._link, line)
        self._lines.append([{**line, "chain": link}], durable=True)
        self._link, self._length = link, self._length + 1
        self._take(line)

    def _restore(self, line: Mapping[str, Any]) -> None:
        """Begin with the first line of a file; the files before it are not there."""
        self._link, self.number = line["link"], line["number"]
        self.removed = dict(line["removed"])
        for one in line["jobs"]:
            places = {"asked": tuple(one["asked"]), "sites": tuple(one["sites"])}
            self.jobs[one["id"]] = self.open[one["id"]] = Job(**{**one, **places})

    def _put_aside(self) -> None:
        following, aside = self._path.with_name(NEXT), self._aside + 1
        line = {
            "what": CONTINUE,
            "link": self._link,
            "aside": aside,
            "number": self.number,
            "jobs": [vars(job) for job in self.open.values()],
            "removed": self.removed,
        }
        link = _linked(self._link, line)
        if self._path.exists():  # else only the last step failed before
            following.unlink(missing_ok=True)
            JsonLines(following).append([{**line, "chain": link}], durable=True)
            _rename(self._path, self._path.with_name(f"ledger-{aside:06}.jsonl"))
        _rename(following, self._path)
        self._link, self._aside = link, aside
        self._lines, self._length = JsonLines(self._path), 1

    def next_id(self) -> str:
        """Return the name of the next job."""
        return f"{self.number + 1:06}"

    def _take(self, line: Mapping[str, Any]) -> None:
        if line["what"] == CONTINUE:
            self._aside = line["aside"]
            return
        self.newest.append(line)
        match line["what"]:
            case "submit":
                self.number += 1
                self.jobs[line["job"]] = self.open[line["job"]] = Job(
                    line["job"],
                    line["name"],
                    line["digest"],
                    line["who"],
                    line["time"],
                    tuple(line["asked"]),
                )
            case "begin":
                job = self.jobs[line["job"]]
                job.state, job.sites, job.began = "running", tuple(line["sites"]), line["time"]
                job.shared = line["shared"]
            case "end":
                job = self.open.pop(line["job"])
                job.state, job.reason, job.ended = line["state"], line["reason"], line["time"]
            case "reply":
                job = self.jobs[line["job"]]
                job.replies[line["who"]] = told(line["reply"], line["reason"])
            case "remove":
                self.removed[line["site"]] = line["reason"]
            case "add":
                self.removed.pop(line["site"], None)


def told(reply: str, reason: str) -> str:
    """Return what a site said to an offer, as a job has it."""
    return f"{reply}: {reason}".removesuffix(": ")


def _linked(before: str, line: Mapping[str, Any]) -> str:
    """Return a line's link of the chain: SHA-256 (hex) of the link before and of the line."""
    text = json.dumps(line, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def _rename(path: Path, to: Path) -> None:
    try:
        sync_folder(to.parent)  # one rename after the other is on the disk
        path.rename(to)
    except OSError as error:
        raise RunError(cannot_write(to, error)) from None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
