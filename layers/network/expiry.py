"""When certificates and revocation lists end, and the warnings before that."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

WARNED = datetime.timedelta(days=14)  # before the end
REVOCATION_LIST = "revocation list"


@dataclass(frozen=True)
class Expiry:
    """The end of the earliest certificate in a file, or the date of the next revocation list.

    Attributes:
        what: "certificate", "authority" or "revocation list".
        path: the file.
        at: the time, in UTC.
    """

    what: str
    path: Path
    at: datetime.datetime

    def warning(self, now: datetime.datetime) -> str | None:
        """Return one line about an end that is near or over; None: it is far away."""
        if now < self.at - WARNED:
            return None
        days = (self.at - now).days
        left = {0: "in less than a day", 1: "in 1 day"}.get(days, f"in {days} days")
        date = f"{self.at:%Y-%m-%d %H:%M} UTC"
        if self.what == REVOCATION_LIST:
            verb = "is due" if now <= self.at else "was due"
            return f"the next {self.what} after {self.path} {verb} {date}; until then it is used"
        if now > self.at:
            return (
                f"the {self.what} {self.path} expired on {date}: open sessions go on, new "
                "connections fail until the file is replaced"
            )
        return (
            f"the {self.what} {self.path} expires {left} ({date}): replace the file before; it is "
            "read again without a restart"
        )


@dataclass(frozen=True)
class CertificateExpires:
    """A certificate, an authority or a revocation list ends soon, or has ended.

    Attributes:
        expiry: which one, and when.
        reason: one line.
    """

    expiry: Expiry
    reason: str


class Reminder:
    """Gives the warnings about each end: one a day, and one when it has come."""

    def __init__(self) -> None:
        self._told: dict[Expiry, int] = {}  # with how many days left

    def due(self, ends: Iterable[Expiry], now: datetime.datetime) -> list[CertificateExpires]:
        """Return the warnings that were not given yet."""
        before, self._told = self._told, {}
        events = []
        for one in ends:
            reason = one.warning(now)
            if reason is not None:
                self._told[one] = days = (one.at - now).days
                if before.get(one) != days:
                    events.append(CertificateExpires(one, reason))
        return events


def utc_now() -> datetime.datetime:
    """Return the time in UTC."""
    return datetime.datetime.now(datetime.timezone.utc)
