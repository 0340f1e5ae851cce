"""The settings of a part: the fields of a frozen dataclass, whose annotations are their limits.

    mu: NotNegative = 0.01
    direction: Literal["unit_vec", "sign"] = "sign"
    bins: Annotated[int, Ge(2)] = 30

A part checks them when it is made. The schema of experiment files, ``fedmx explain``, the pages
and the tests read the same annotations.
"""

from __future__ import annotations

import functools
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt, Predicate

FINITE = Predicate(math.isfinite)

Positive = Annotated[float, Gt(0), FINITE]
NotNegative = Annotated[float, Ge(0), FINITE]
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
Fraction = Annotated[float, Gt(0), Lt(1)]
Decay = Annotated[float, Ge(0), Lt(1)]
Bound = Annotated[float, Gt(0)]
"""A bound, which may be infinite: then it bounds nothing."""
Count = Annotated[int, Ge(1)]
WholeNumber = Annotated[int, Ge(0)]


class Settings:
    """The base of all parts, whose fields have the values that their annotations allow.

    The fields are checked before the `__post_init__` of a class runs, whether or not it calls that
    of its base class.

    Attributes:
        refusal: the error that a wrong setting raises.
    """

    refusal: ClassVar[type[Exception]] = ValueError

    def __post_init__(self) -> None:
        """Check the settings; a class that checks more overrides this."""
        part: type = type(self)
        check(vars(self), hints_of(part), self.refusal)

    def __init_subclass__(cls, **given: Any) -> None:
        """Check the settings before the `__post_init__` of the class, if it has one."""
        super().__init_subclass__(**given)
        own: Callable[[Any], None] | None = vars(cls).get("__post_init__")
        if own is None:
            return

        @functools.wraps(own)
        def checked(self: Any) -> None:
            Settings.__post_init__(self)
            own(self)

        cls.__post_init__ = checked  # type: ignore[method-assign]


@functools.cache
def hints_of(part: type) -> Mapping[str, Any]:
    """Return the type of each annotated attribute of a class and its base classes.

    An attribute whose annotation cannot be evaluated, such as one with a type-only import, is left
    out.
    """
    hints: dict[str, Any] = {}
    for base in reversed(part.__mro__):
        names = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        for name, annotation in vars(base).get("__annotations__", {}).items():
            alone: Any = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= typing.get_type_hints(alone, names, include_extras=True)
            except Exception:  # noqa: BLE001 - evaluating a user's annotation may raise anything
                hints.pop(name, None)
    return hints


def check(values: Mapping[str, Any], hints: Mapping[str, Any], refusal: type[Exception]) -> None:
    """Check the values of some settings against their types.

    Raises:
        Exception: of the type `refusal`; a value is none of a `Literal`, or beyond its limits.
    """
    for name, hint in hints.items():
        if name not in values:
            continue
        for needed, value in _problems(values[name], hint):
            raise refusal(f"{name} must be {needed}, not {value!r}")


def range_words(limits: tuple[Any, ...]) -> str:
    """Return the limits of an `Annotated` number as in "from 0 to 1"; empty: it has none."""
    words = []
    for one in limits:
        match one:
            case Ge(ge=least):
                words.append(f"from {least}")
            case Gt(gt=least):
                words.append(f"above {least}")
            case Le(le=most):
                words.append(f"to {most}")
            case Lt(lt=most):
                words.append(f"to below {most}")
    return " ".join(words)


def _problems(value: Any, hint: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value, or an item of it, must be, and that value or item."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        fitting = [one for one in arguments if _fits(value, one)] or arguments
        yield from _problems(value, fitting[0])
    elif origin is Literal:
        if not any(type(value) is type(one) and value == one for one in arguments):
            yield _either(arguments), value
    elif origin is tuple and isinstance(value, tuple):
        kinds = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        for item, kind in zip(value, kinds):  # noqa: B905 - a file's reader checks the number
            yield from _problems(item, kind)
    elif origin is Annotated:
        for limit in arguments[1:]:
            needed, holds = _limit(limit)
            if not _holds(value, holds):
                yield needed, value
                return


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of the kind of one type of a union."""
    if typing.get_origin(hint) is Literal:
        return not any(_problems(value, hint))
    kind = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    kind = typing.get_origin(kind) or kind
    if kind in (int, float):
        return isinstance(value, Real) and not isinstance(value, bool)
    return not isinstance(kind, type) or isinstance(value, kind)


def _limit(limit: Any) -> tuple[str, Callable[[Any], bool]]:
    """Return a limit in words, and whether a value keeps it."""
    match limit:
        case Ge(ge=least):
            return f"at least {least}", lambda value: value >= least
        case Gt(gt=least):
            return f"greater than {least}", lambda value: value > least
        case Le(le=most):
            return f"at most {most}", lambda value: value <= most
        case Lt(lt=most):
            return f"less than {most}", lambda value: value < most
        case Predicate(func=holds):
            return "finite", holds
    return "", lambda value: True


def _holds(value: Any, holds: Callable[[Any], bool]) -> bool:
    try:
        return holds(value)
    except TypeError:  # as for text
        return False


def _either(known: tuple[Any, ...]) -> str:
    *others, last = map(repr, known)
    return f"{', '.join(others)} or {last}" if others else last
