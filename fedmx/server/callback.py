"""Callbacks: user code that runs after each round and may end the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.log import Log
from fedmx.quantities import Quantity
from fedmx.run import RunFolder
from fedmx.run.identity import Ending
from fedmx.server.round import Round
from layers.logic import LogicError, ServerState
from layers.logic.checks.parts import check_methods

log = Log("fedmx.run")


class CallbackError(FedmxError):
    """A callback failed, or is none; the text names it, and the round."""


class Running(Protocol):
    """What a callback sees of a run; a `Server` is one."""

    @property
    def experiment(self) -> Experiment | None:
        """The experiment; None if the server was made of parts by hand."""

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder; None: the run is not recorded."""

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The rounds until now, those before a resume included: `Round.record` without lists."""

    @property
    def quantities(self) -> Sequence[Quantity]:
        """The metrics of the model; the first one stands for it."""

    @property
    def state(self) -> ServerState:
        """The state after the last round; its `weights` are the global model, float32 (d,)."""

    @property
    def last_round(self) -> int:
        """The number of the last round."""

    @property
    def reason(self) -> str:
        """Why the run has ended; empty: it has not."""

    @property
    def confidential(self) -> bool:
        """Whether the records stay with the server: publish `published` of them alone."""

    def save_model(self, path: Path) -> None:
        """Write the global model as a safetensors file, one named tensor for each parameter."""


class Callback:
    """Hears of each round of a run, simulated or deployed. Override what you need.

    A callback decides by the results of the rounds alone, not by time or chance, so that a resumed
    run ends where the uninterrupted one does: `on_begin` is given the rounds before the resume.
    """

    def on_begin(self, run: Running) -> None:
        """Called before the first round, and again when a run is resumed."""

    def stop(self, round: Round) -> str | None:
        """Return why the run ends after this round, in a few words; None: it goes on.

        Called before the round is recorded. After a step back a round comes again, and those after
        it are forgotten.
        """
        return None

    def on_round(self, round: Round) -> None:
        """Called when the round was recorded; the run's `state` is the one after it."""

    def on_end(self, status: Ending, reason: str) -> None:
        """Called at the end, when the run folder has its model and its report.

        Args:
            status: ``done``, ``stopped`` (the caller left the loop), ``interrupted`` or ``failed``.
            reason: why, in one line.
        """


class Callbacks:
    """Calls the callbacks of one run, in their order.

    Raises:
        CallbackError: one of them is not a callback, or one of its methods is misspelt.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        given: tuple[object, ...] = tuple(callbacks)
        self._all: list[Callback] = []
        self._inside = False
        for one in given:
            if not isinstance(one, Callback):
                what = f"the class {one.__name__}" if isinstance(one, type) else repr(one)
                raise CallbackError(
                    f"callbacks: {what} is no callback; give an object of a class that is derived "
                    "from fedmx.Callback"
                )
            try:
                check_methods(type(one), Callback)
            except LogicError as error:
                raise CallbackError(str(error)) from None
            self._all.append(one)

    @property
    def deciding(self) -> list[str]:
        """Those that may end the run, as text."""
        return [_text(one) for one in self._all if type(one).stop is not Callback.stop]

    def warn_unless(self, before: Sequence[str]) -> None:
        """Log it if the run that is resumed had other callbacks that may end it."""
        missing = [one for one in before if one not in self.deciding]
        if missing:
            log.warning(
                "callback_missing",
                "the run goes on without the callback {callbacks}",
                callbacks=", ".join(missing),
            )

    @contextmanager
    def during(self, run: Running) -> Iterator[None]:
        """Call `on_begin` now and `on_end` at the end; once, however often it is entered."""
        if self._inside or not self._all:
            yield
            return
        self._inside, begun = True, list[Callback]()
        try:
            for one in self._all:
                begun.append(one)
                _call(one, "on_begin", "before the first round", run)
            yield
        except BaseException as error:
            status, text = _ending_of(error)
            for one in begun:
                try:
                    one.on_end(status, text)
                except Exception as another:  # noqa: BLE001 - the first error is the one to show
                    log.warning(
                        "callback_failed",
                        "callback {callback}: {reason}",
                        callback=type(one).__name__,
                        reason=another,
                    )
            raise
        else:
            for one in begun:
                _call(one, "on_end", "at the end", "done", run.reason)
        finally:
            self._inside = False

    def stop(self, round: Round) -> str | None:
        """Tell all of a round; return the first reason to end the run, or None.

        Raises:
            CallbackError: a callback failed, or returned something else than a reason.
        """
        reasons = [_call(one, "stop", f"in round {round.round}", round) for one in self._all]
        for one, reason in zip(self._all, reasons, strict=True):
            if reason and not isinstance(reason, str):
                raise CallbackError(
                    f"{type(one).__name__}.stop returned {reason!r} in round {round.round}; it "
                    "must return why the run ends, as text, or None"
                )
        return next((reason for reason in reasons if reason), None)

    def on_round(self, round: Round) -> None:
        """Tell all of a recorded round."""
        for one in self._all:
            _call(one, "on_round", f"in round {round.round}", round)


def _text(callback: Callback) -> str:
    """Return a callback with its settings if it shows them; never an address in memory."""
    kind = type(callback)
    return kind.__name__ if kind.__repr__ is object.__repr__ else repr(callback)


def _call(callback: Callback, method: str, when: str, *arguments: Any) -> Any:
    """Call a method.

    Raises:
        CallbackError: it failed, and not with an error that fedmx wrote for its users.
    """
    try:
        return getattr(callback, method)(*arguments)
    except FedmxError:
        raise
    except Exception as error:
        name = f"{type(callback).__name__}.{method}"
        text = " ".join(str(error).split())
        raise CallbackError(f"{name} failed {when}: {type(error).__name__}: {text}") from error


def _ending_of(error: BaseException) -> tuple[Ending, str]:
    if isinstance(error, GeneratorExit):
        return "stopped", "its caller left the loop"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted"
    return "failed", f"{type(error).__name__}: {error}"
