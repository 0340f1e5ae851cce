"""The transfers of one open connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from layers.network.files.folders import Incoming, Outgoing
from layers.network.session.session_events import FileOffered


@dataclass
class Desk:
    """The transfers of one open connection, by stream.

    Attributes:
        peer: who is at the other end.
        folder: where files are received; None: nowhere.
        any_file: whether all that is offered is received, and not only what is expected.
        waiting: offers of which it is not known yet whether they are expected.
        incoming: files that are being received.
        outgoing: files that are offered or sent.
        accepted: how often the peer has accepted each of them.
        hashing: held by the one file of this connection that is hashed now.
    """

    peer: str
    folder: Path | None
    any_file: bool = False
    waiting: list[FileOffered] = field(default_factory=list)
    incoming: dict[int, Incoming] = field(default_factory=dict)
    outgoing: dict[int, Outgoing] = field(default_factory=dict)
    accepted: Counter[int] = field(default_factory=Counter)
    hashing: asyncio.Lock = field(default_factory=asyncio.Lock)
