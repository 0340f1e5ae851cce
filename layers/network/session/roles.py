"""The two ends of a handshake: what a server's and a client's session do before they are open."""

from __future__ import annotations

from collections.abc import Iterator

from layers.network.encoding.codec import MessageCodec
from layers.network.errors import NetworkError, ProtocolError
from layers.network.protocol.frames import Frame, Kind
from layers.network.protocol.handshake import (
    Greeting,
    Hello,
    Terms,
    Welcome,
    answer_greeting,
    check_hello,
    check_identity,
    check_welcome,
    greet,
    welcome,
)
from layers.network.protocol.limits import CLIENT_PATIENCE, Limits
from layers.network.session.control_frames import words_of
from layers.network.session.session import Session
from layers.network.session.session_events import Opened, SessionEvent, Verified
from layers.network.session.states import State


class ServerSession(Session):
    """The server's end of one connection.

    `certified` is the common name of the client's certificate, None without mutual TLS.
    """

    def __init__(
        self,
        codec: MessageCodec,
        now: float,
        *,
        limits: Limits | None = None,
        features: frozenset[str] = frozenset(),
        token: bytes | None = None,
        certified: str | None = None,
        heartbeat_s: float = 5.0,
        heartbeat_timeout_s: float = 20.0,
    ) -> None:
        self._own_limits = limits or Limits()
        patience_s = self._own_limits.handshake_s
        super().__init__(codec, self._own_limits, now, State.AWAIT_HELLO, patience_s)
        self.claimed: str | None = None  # not verified: for reports only
        self._features = features
        self._token = token
        self._certified = certified
        self._rhythm = (heartbeat_s, heartbeat_timeout_s)
        self._verified: tuple[Hello, Terms] | None = None
        self._greeting = greet(token)
        self._say(Kind.GREETING, 0, self._greeting)

    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]:
        hello = words_of(frame, Hello)
        self.claimed = hello.identity[:64]
        terms = check_hello(
            self._greeting,
            hello,
            self._features,
            self._token,
            self._certified,
            self._own_limits,
        )
        self._verified = hello, terms
        self.state = State.DECIDING
        yield Verified(terms)

    def admit(self) -> list[SessionEvent]:
        """Open the session to the verified client; return the events.

        Raises:
            ProtocolError: there is no verified client that waits for a decision.
        """
        if self.state is not State.DECIDING or self._verified is None:
            raise ProtocolError(f"nobody to admit while {self.state.value}")
        hello, terms = self._verified
        words = welcome(self._greeting, hello, terms, self._token, self._own_limits, *self._rhythm)
        self._say(Kind.WELCOME, 0, words)
        self._open(terms, *self._rhythm)
        return [Opened(terms)]


class ClientSession(Session):
    """The client's end of one connection.

    `certified` says that TLS has verified the server.

    Raises:
        AuthenticationFailed: an identity that no server would accept.
    """

    def __init__(
        self,
        identity: str,
        codec: MessageCodec,
        now: float,
        *,
        limits: Limits | None = None,
        features: frozenset[str] = frozenset(),
        token: bytes | None = None,
        certified: bool = False,
    ) -> None:
        self._own_limits = limits or Limits()
        patience_s = CLIENT_PATIENCE * self._own_limits.handshake_s
        super().__init__(codec, self._own_limits, now, State.AWAIT_GREETING, patience_s)
        check_identity(identity)
        self._identity = identity
        self._features = features
        self._token = token
        self._certified = certified
        self._said: tuple[Greeting, Hello] | None = None

    def _handshake(self, frame: Frame) -> Iterator[SessionEvent]:
        if frame.kind is Kind.GREETING:
            greeting = words_of(frame, Greeting)
            hello = answer_greeting(
                greeting, self._identity, self._features, self._token, self._own_limits
            )
            self._said = greeting, hello
            self._say(Kind.HELLO, 0, hello)
            self.state = State.AWAIT_WELCOME
            return
        if self._said is None:
            raise NetworkError("a welcome before a greeting")
        words = words_of(frame, Welcome)
        terms = check_welcome(*self._said, words, self._token, self._certified)
        self._open(terms, words.heartbeat_s, words.heartbeat_timeout_s)
        yield Opened(terms)
