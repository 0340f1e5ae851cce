"""The settings of a part: the fields of a frozen dataclass, checked when the part is made."""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal


class Settings:
    """The base of all parts: a setting has one of the values that its annotation lists.

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
        Exception: of the type `refusal`; a value is none of those that its `Literal` lists.
    """
    for name, hint in hints.items():
        if name not in values or typing.get_origin(hint) is not Literal:
            continue
        known, value = typing.get_args(hint), values[name]
        if not any(type(value) is type(one) and value == one for one in known):
            raise refusal(f"{name} must be {_either(known)}, not {value!r}")


def _either(known: tuple[Any, ...]) -> str:
    *others, last = map(repr, known)
    return f"{', '.join(others)} or {last}" if others else last
