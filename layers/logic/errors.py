"""The errors of the logic layer; `LogicError` is their root."""

from __future__ import annotations

from dataclasses import FrozenInstanceError


class LogicError(Exception):
    """Something that the logic layer was given is wrong; the message says what and where."""


def reason_of(error: BaseException) -> str:
    """Return in one line why a part failed, without round, client and place."""
    if isinstance(error, PartFailed):
        return error.what
    hint = ""
    if isinstance(error, FrozenInstanceError):
        hint = "; return a changed copy, as in replace(update, delta=0.5 * update.delta)"
    return f"{type(error).__name__}: {error}{hint}"


class Rejected(LogicError):
    """One update or task is rejected; it is reported, and the round continues without it."""


class CannotTrain(Rejected):
    """A client cannot train on the model that it was sent, as it says or its update shows."""


class NotUsable(LogicError):
    """An unusable model: it is not finite, or a round moved it too far."""


class ClientFailed(LogicError):
    """A client's own code failed; the message names the client and the round."""

    def __init__(self, client: int, round: int, what: str) -> None:
        self.client, self.round, self.what = client, round, what
        super().__init__(f"client {client}, round {round}: {what}")


class ImpossibleRound(LogicError):
    """An algorithm plans a round that another part cannot work with."""


class PartFailed(LogicError):
    """A hook, a selector, an aggregator or a trainer failed, or returned a wrong result.

    Attributes:
        what: the part, its method, and what is wrong, in one line.
        place: file and line of the method; empty: not known.
    """

    def __init__(self, what: str, place: str, round: int, client: int | None = None) -> None:
        self.what, self.place = what, place
        who = "" if client is None else f", client {client}"
        super().__init__(f"round {round}{who}: {what}{f' ({place})' if place else ''}")
