"""The errors of a course: it cannot be read, or what happens now is not what happened then."""

from __future__ import annotations

from fedmx.errors import FedmxError


class CourseError(FedmxError):
    """The course of a deployment cannot be used, or a simulation of it parts from it.

    Attributes:
        round: the round in question; None: the course as a whole.
        client: the client whose part is another one now; None: no single client's.
    """

    def __init__(self, text: str, round: int | None = None, client: int | None = None) -> None:
        super().__init__(text)
        self.round, self.client = round, client
