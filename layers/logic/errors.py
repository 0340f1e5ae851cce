"""The errors of the logic layer; `LogicError` is their root."""

from __future__ import annotations


class LogicError(Exception):
    """Something that the logic layer was given cannot be right; the message says what and where."""


class Rejected(LogicError):
    """One update (or task) cannot be used; it is reported and the round goes on without it."""


class ClientFailed(LogicError):
    """A client's own code raised; the message names the client and the round."""

    def __init__(self, client: int, round: int, what: str) -> None:
        self.client, self.round, self.what = client, round, what
        super().__init__(f"client {client}, round {round}: {what}")
