"""The names under which the clients of a run connect, by their numbers in the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache


def identity(client: int) -> str:
    """Return the name of client number `client` where its certificate has the number."""
    return f"client-{client}"


class NumberedNames:
    """Names that have the numbers, as in client-7."""

    def of(self, client: int) -> str:
        """Return the name of a client."""
        return identity(client)

    def number(self, peer: str) -> int | None:
        """Return the number of a client; None: it is the name of none."""
        return _number_in(peer)

    def advice(self, clients: int | None) -> str:
        """Return the names that a run of so many clients knows, as the end of a line."""
        most = "" if clients is None else f", N from 0 to {clients - 1}"
        return f"; connect as client-N{most}"


class SiteNames:
    """The names of sites, which take part in many runs, each time with another number.

    Args:
        sites: the names, in the order of the numbers.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        self._sites = tuple(sites)
        self._numbers = {name: number for number, name in enumerate(sites)}

    def of(self, client: int) -> str:
        """Return the name of a client."""
        return self._sites[client]

    def number(self, peer: str) -> int | None:
        """Return the number of a client; None: it is the name of none."""
        return self._numbers.get(peer)

    def advice(self, clients: int | None) -> str:
        """Return nothing: a stranger hears no names of sites."""
        return ""


@lru_cache(maxsize=1 << 14)  # strangers choose names, too: 4 MB at the most
def _number_in(peer: str) -> int | None:
    """Return the number of a client from its identity; None: it is not one of a client."""
    match = re.fullmatch(r"client-(0|[1-9]\d{0,8})", peer)
    return None if match is None else int(match[1])
