"""The errors of the front: what a user typed, wrote or named and fedmx cannot use."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 20  # lines of an error with many problems


class FedmxError(Exception):
    """Root of the front's errors; its text says what was wrong, where, and what to do."""


class ExperimentError(FedmxError):
    """An experiment, or a component that it names, is wrong; ``problems`` has one line each."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[str, ...] = tuple(problems) or (message,)

    @classmethod
    def of(cls, source: str, problems: Sequence[str]) -> ExperimentError:
        """One error of all ``problems``: a single one is one line, more follow a count."""
        if len(problems) == 1:
            return cls(problems[0], problems)
        head = f"{source or 'experiment'}: {len(problems)} problems"
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        return cls("\n  ".join([head, *problems[:_SHOWN], *more]), problems)
