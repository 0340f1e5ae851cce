"""Errors of a user: in commands, files and names."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_LINES = 20  # of an error with many problems


class FedmxError(Exception):
    """The base of all errors of `fedmx`; the text says what was wrong, where, and what to do."""


class ExperimentError(FedmxError):
    """An experiment, or a component that it names, is wrong.

    Attributes:
        problems: one line for each problem.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[str, ...] = tuple(problems) or (message,)

    @classmethod
    def of(cls, source: str, problems: Sequence[str]) -> ExperimentError:
        """Return one error for all problems.

        Args:
            source: the experiment's name for messages; empty for one made in Python.
            problems: one line each. A single problem is the whole text; several follow their count.
        """
        if len(problems) == 1:
            return cls(problems[0], problems)
        head = f"{source or 'experiment'}: {len(problems)} problems"
        more = [f"and {len(problems) - _MAX_LINES} more"] if len(problems) > _MAX_LINES else []
        return cls("\n  ".join([head, *problems[:_MAX_LINES], *more]), problems)
