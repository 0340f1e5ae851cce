"""An algorithm under way: the generator that `Selector.run` returned, and what it may ask for."""

from __future__ import annotations

import traceback
from types import GeneratorType
from typing import Any

from layers.logic.checks.parts import class_name, place_of_code
from layers.logic.checks.returned import failure, guarded
from layers.logic.core.round import Answers, Changed, Next, OpenRound, Wait
from layers.logic.core.selector import Selector
from layers.logic.errors import LogicError, PartFailed, reason_of


class Algorithm:
    """The algorithm of one round.

    Args:
        selector: the part whose `run` it is.
        round: the round.

    Attributes:
        wait: what it waits for; None: it has ended.

    Raises:
        PartFailed: `run` failed, or is not a generator.
    """

    def __init__(self, selector: Selector, round: OpenRound) -> None:
        self._selector, self._round = selector, round
        steps: Any = guarded(selector.run, round, round=round.number)
        if not isinstance(steps, GeneratorType):
            what = "waits for nothing; write yield from before a call that waits, such as"
            raise failure(selector.run, f"{what} round.until_all()", round.number)
        self._steps = steps
        self.wait: Wait | None = None
        self.resume(None)

    def resume(self, value: Any) -> Wait | None:
        """Go on with what it has waited for; return what it waits for next.

        Raises:
            PartFailed: it failed, or waits for nothing.
        """
        try:
            wait = self._steps.send(value)
        except StopIteration:
            self.wait = None
            return None
        except LogicError as error:
            if type(error) is not LogicError:
                raise
            raise self._at(error, str(error)) from error  # what it has said to the round is wrong
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            what = f"{class_name(type(self._selector))}.run failed: {reason_of(error)}"
            raise PartFailed(what, "", self._round.number) from error
        if not isinstance(wait, Answers | Next | Changed):
            raise self.refused(
                f"yields a {type(wait).__name__}; write yield from before a call that waits"
            )
        self.wait = wait
        return wait

    def close(self) -> None:
        """End it where it waits, such as at the deadline of the round."""
        self._steps.close()

    def refused(self, what: str) -> PartFailed:
        """Return an error about what it has just done, with its file and line."""
        frame, code = self._steps.gi_frame, self._steps.gi_code
        line = code.co_firstlineno if frame is None else frame.f_lineno
        name = f"{class_name(type(self._selector))}.run"
        return PartFailed(f"{name} {what}", f"{code.co_filename}:{line}", self._round.number)

    def _at(self, error: Exception, what: str) -> PartFailed:
        """Return an error about what it has raised, with the line in it."""
        code, part = self._steps.gi_code, self._selector
        method, place = "run", ""
        if code is Selector.run.__code__:  # it has only `select`
            method, place = "select", place_of_code(part.select)
        else:
            for frame, line in traceback.walk_tb(error.__traceback__):
                place = f"{code.co_filename}:{line}" if frame.f_code is code else place
        name = f"{class_name(type(part))}.{method}"
        return PartFailed(f"{name}: {what}", place, self._round.number)
