"""Where a session can stand, and which frames may come there.

=================  ======================================================  =====================
state              frames that may come                                    left by
=================  ======================================================  =====================
AWAIT_GREETING     GREETING, REFUSAL                                       GREETING (client)
AWAIT_WELCOME      WELCOME, REFUSAL                                        WELCOME (client)
AWAIT_HELLO        HELLO, REFUSAL                                          HELLO (server)
DECIDING           REFUSAL                                                 admit, refuse (server)
OPEN               PING, PONG, MESSAGE, DATA, PARTIAL, CONTINUE,           GOODBYE, REFUSAL
                   FILE_*, GOODBYE, REFUSAL
CLOSING            any; none is read                                       the connection's end
=================  ======================================================  =====================

In every state, a frame that may not come, a timeout and a broken connection lead to CLOSING, with
an `Ended` event that says why.
"""

from __future__ import annotations

import enum

from layers.network.protocol.frames import FILE_KINDS, MESSAGE_KINDS, Kind


class State(enum.Enum):
    """Where a session stands; see the table above."""

    AWAIT_GREETING = "waiting for the server's greeting"
    AWAIT_WELCOME = "waiting for the server's welcome"
    AWAIT_HELLO = "waiting for the client's hello"
    DECIDING = "deciding on the client"
    OPEN = "open"
    CLOSING = "closing"


ALLOWED: dict[State, frozenset[Kind]] = {
    State.AWAIT_GREETING: frozenset({Kind.GREETING, Kind.REFUSAL}),
    State.AWAIT_WELCOME: frozenset({Kind.WELCOME, Kind.REFUSAL}),
    State.AWAIT_HELLO: frozenset({Kind.HELLO, Kind.REFUSAL}),
    State.DECIDING: frozenset({Kind.REFUSAL}),
    State.OPEN: frozenset({Kind.PING, Kind.PONG, Kind.GOODBYE, Kind.REFUSAL, Kind.PARTIAL})
    | MESSAGE_KINDS
    | FILE_KINDS,
}
EMPTY_KINDS = frozenset({Kind.PING, Kind.PONG, Kind.FILE_DONE})
