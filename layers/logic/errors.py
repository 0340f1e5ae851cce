"""The errors of the logic layer; `LogicError` is their root."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layers.logic.core.report import RoundReport


class LogicError(Exception):
    """Something that the logic layer was given cannot be right; the message says what and where."""


class Rejected(LogicError):
    """One update (or task) cannot be used; it is reported and the round goes on without it."""


class TooFewUpdates(LogicError):
    """A round ended with fewer counted updates than the experiment asks for.

    The global model is unchanged and the round has not been counted: it can be run again.

    Attributes:
        report: what became of each client, where the round itself raised.
    """

    report: RoundReport | None = None

    def __init__(self, got: int, need: int, round: int) -> None:
        self.got, self.need, self.round = got, need, round
        super().__init__(
            f"round {round}: {got} of the {need} updates that logic.min_updates asks for arrived; "
            "the model is unchanged; see clients.jsonl for each client's reason, "
            "or lower logic.min_updates"
        )


class ClientFailed(LogicError):
    """A client's own code raised; the message names the client and the round."""

    def __init__(self, client: int, round: int, what: str) -> None:
        self.client, self.round, self.what = client, round, what
        super().__init__(f"client {client}, round {round}: {what}")
