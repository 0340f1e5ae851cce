"""Checks of a part's results, at once, so that an error names the part that is at fault.

A part is not blamed for values that are not finite if it was given such values, or values so large
that a float32 cannot hold what one computes from them: then the model is broken, not the part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from layers.logic.checks.parts import at_place, class_name, place_of_code
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.engine import Data
from layers.logic.core.hook import ClientContext, ClientSide, Context, ServerSide
from layers.logic.core.messages import Layout, Task, Update
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError, NotUsable, PartFailed, reason_of
from layers.logic.numeric.vectors import largest

NOT_FINITE = "made a model with values that are not finite"
BROKEN_ADVICE = (
    "the model before this round is kept; lower the learning rate (the server's, too) or clip"
)

Message = TypeVar("Message", Task, Update, ServerState)
Returned = TypeVar("Returned")
At = TypeVar("At", bound=Context)

_DEFAULTS = {ServerSide.__module__}
_FIELDS: dict[type, tuple[str, str, str]] = {
    Task: ("task", "weights", "buffers"),
    Update: ("update", "delta", "buffers"),
    ServerState: ("state", "weights", "buffers"),
}


def checked(
    method: Callable[[Message, At], Message],
    given: Message,
    at: At,
    *,
    server: bool = False,
) -> Message:
    """Call a method of a hook's side, and return its result.

    Args:
        method: takes a task, an update or a state, and a context, and returns the first, changed.
        given: the task, the update or the state.
        at: the context.
        server: whether it is a server side, whose errors get the part's name, round and client;
            the runner of a client adds them to those of a client side.

    Raises:
        PartFailed: it returned something else, a vector of a wrong type or length, or a task or
            update with values that are not finite; or a server side raised an error.
        NotUsable: it returned a state with values that are not finite.
    """
    if _is_default(method):
        return method(given, at)
    # An array that the part may change in place is looked at before.
    sound = {name: _is_sound(one) for name, one in _vectors(given) if one.flags.writeable}
    call = guarded if server else _plainly
    after = call(method, given, at, round=at.round, client=at.client)
    problem = wrong_form(given, after, at.layout)
    if problem is not None:
        raise failure(method, f"returned {problem}", at.round, at.client)
    for (name, was), (_, now) in zip(_vectors(given), _vectors(after), strict=True):
        if (now is was and name not in sound) or _is_sound(now) or _is_finite(now):
            continue
        if not was.size or not (sound[name] if name in sound else _is_sound(was)):
            continue
        if isinstance(given, ServerState):
            where = f"{_name(method)}{at_place(method)}"
            raise NotUsable(f"round {at.round}: {where} {NOT_FINITE}; {BROKEN_ADVICE}")
        what = f"returned {_owner(given)}{name} with {_broken(now)}"
        raise failure(method, what, at.round, at.client)
    return after


def guarded(
    method: Callable[..., Returned], *arguments: Any, round: int, client: int | None = None
) -> Returned:
    """Call a method of a part and return its result.

    Raises:
        PartFailed: it raised an error other than the framework's own.
    """
    try:
        return method(*arguments)
    except (LogicError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        what = f"{_name(method)} failed: {reason_of(error)}"
        raise PartFailed(what, "", round, client) from error


def _plainly(
    method: Callable[..., Returned], *arguments: Any, round: int, client: int | None = None
) -> Returned:
    """Call a client's method, whose errors others name; sys.exit() would end the process
    silently."""
    try:
        return method(*arguments)
    except SystemExit as error:
        raise failure(method, f"called sys.exit({error.code})", round, client) from error


def _is_sound(vector: np.ndarray) -> bool:
    """Return whether a vector is float32 (any,), finite, and its sum of squares, too.

    The sum of its squares shows it, in a tenth of the time of a check of each value.
    """
    if vector.dtype != np.float32 or vector.ndim != 1:
        return False
    with np.errstate(all="ignore"):
        return math.isfinite(np.dot(vector, vector))


def _is_finite(vector: np.ndarray) -> bool:
    return vector.dtype == np.float32 and math.isfinite(largest(vector))


def checked_gradient(
    side: ClientSide, gradient: np.ndarray, weights: np.ndarray, at: ClientContext
) -> None:
    """Let a side change the gradient of a task's first step, and check it.

    Raises:
        PartFailed: it returned a gradient, or made one that is not finite.
    """
    sound = _is_sound(gradient)
    returned: object = side.gradient(gradient, weights, at)  # type: ignore[func-returns-value]
    if returned is not None and returned is not gradient:
        raise failure(
            side.gradient,
            f"returned {_shown(returned)}, which is not used; it changes its argument in place, as "
            "gradient[:] = ...",
            at.round,
            at.client,
        )
    if sound and not _is_sound(gradient) and not _is_finite(gradient):
        what = f"made a gradient with {_broken(gradient)}"
        raise failure(side.gradient, what, at.round, at.client)


def checked_samples(side: ClientSide, data: Data, at: ClientContext) -> Data:
    """Return the samples to train on, as a side returned them.

    Raises:
        PartFailed: it returned no samples.
    """
    after = side.samples(data, at)
    arrays: tuple[Any, ...] = (getattr(after, "x", None), getattr(after, "y", None))
    if after is not data and not all(isinstance(one, np.ndarray) for one in arrays):
        what = f"returned {_shown(after)}; it must return samples with the arrays x and y"
        raise failure(side.samples, what, at.round, at.client)
    return after


def wrong_form(given: Any, after: Any, layout: Layout) -> str | None:
    """Return the first formal error of a returned task, update or state; None if it is correct."""
    word = _FIELDS[type(given)][0]
    if not isinstance(after, type(given)):
        return f"{_shown(after)}; it must return the {word}, changed or not"
    for (name, was), (_, now) in zip(_vectors(given), _vectors(after), strict=True):
        if now is was:
            continue
        if not isinstance(now, np.ndarray):
            return f"{_owner(given)}{name} that is {_shown(now)}; it must be a float32 array"
        if now.dtype != np.float32 and was.dtype == np.float32:
            return (
                f"{_owner(given)}{name} of {now.dtype}; it must be float32: "
                "end with .astype(np.float32)"
            )
        allowed = [was.shape] if was.size else []
        if name != "buffers" and len(layout):
            allowed.append((layout[-1].stop,))
        if now.size and allowed and now.shape not in allowed:
            return (
                f"{_owner(given)}{name} of shape {now.shape}; it must be "
                f"{' or '.join(map(str, dict.fromkeys(allowed)))}"
            )
    return None


def failure(
    method: Callable[..., Any], what: str, round: int, client: int | None = None
) -> PartFailed:
    """Return the error about a method of a part, with its name, file and line."""
    return PartFailed(f"{_name(method)} {what}", place_of_code(method), round, client)


def _vectors(message: Any) -> Iterator[tuple[str, Any]]:
    for name in _FIELDS[type(message)][1:]:
        yield name, getattr(message, name)


def _owner(message: Any) -> str:
    return "" if isinstance(message, ServerState) else f"{_FIELDS[type(message)][0]}."


def _is_default(method: Callable[..., Any]) -> bool:
    function = getattr(method, "__func__", None)
    return getattr(function, "__module__", None) in _DEFAULTS


def _name(method: Callable[..., Any]) -> str:
    return f"{class_name(type(getattr(method, '__self__', None)))}.{method.__name__}"


def _broken(vector: np.ndarray) -> str:
    count = int((~np.isfinite(vector)).sum())
    return f"{count} of {vector.size} values not finite, and was given finite ones"


def _shown(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"a {type(value).__name__}"


def added(aggregator: Aggregator, total: Any, contribution: Contribution, round: int) -> Any:
    """Return the value of the fold with one more contribution.

    Raises:
        PartFailed: `add` failed, or it returned None although there was a value before.
    """
    lane = contribution.updates
    client = lane[0].client if len(lane) == 1 else None
    after = guarded(aggregator.add, total, contribution, round=round, client=client)
    if after is None and total is not None:
        what = "returned None; it must return the value of the fold, as return total"
        raise failure(aggregator.add, what, round, client)
    return after


def finished(aggregator: Aggregator, total: Any, state: ServerState, layout: Layout) -> ServerState:
    """Return the state after aggregation.

    Raises:
        PartFailed: `finish` failed, or it returned no state, or vectors of a wrong type or length.
    """
    round = state.round + 1
    after = guarded(aggregator.finish, total, state, round=round)
    problem = wrong_form(state, after, layout)
    if problem is not None:
        raise failure(aggregator.finish, f"returned {problem}", round)
    return after
