"""The sections of an experiment in general, the types of their keys, and executors as keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
)

from fedmx.components.catalogue import KINDS, read_catalogue, unknown_name
from fedmx.components.component import Component
from fedmx.components.text import Where, in_words, shown, takes_bool

MAX_COUNT = 2**31 - 1

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # pydantic has no public name for it


def _check_all_or_count(value: Any) -> Any:
    if value == "all":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT:
        return value
    raise ValueError(f"must be all or a whole number from 1, not {shown(value)}")


def _check_path(value: Any) -> Any:
    if isinstance(value, str) and (not value or "\0" in value):
        raise ValueError(f"must be a path, not {shown(value)}")
    return value


@dataclass(frozen=True)
class Takes:
    """The values of a type, as the documentation describes them."""

    text: str


@dataclass(frozen=True)
class Rules:
    """What holds for a key besides its type and its default.

    Attributes:
        in_digest: whether the digest of an experiment has the key. ``"unless default"`` is for keys
            that were added later: the digests of files without them stay the same.
        fixed: why a fork cannot change the key; empty if it can.
    """

    in_digest: Literal["always", "unless default", "never"] = "always"
    fixed: str = ""


Count = Annotated[int, Field(ge=1, le=MAX_COUNT), Takes("count")]
WholeNumber = Annotated[int, Field(ge=0, le=MAX_COUNT), Takes("whole number from 0")]
CountOrAll = Annotated[
    int | Literal["all"],
    BeforeValidator(_check_all_or_count, json_schema_input_type=Count | Literal["all"]),
    Takes("count or `all`"),
]
Positive = Annotated[float, Field(gt=0), Takes("number above 0")]
NotNegative = Annotated[float, Field(ge=0), Takes("number from 0")]
Share = Annotated[float, Field(gt=0, le=1), Takes("number in (0, 1]")]
_NotEmpty = Annotated[str, Field(min_length=1)]
PathText = Annotated[
    Path, BeforeValidator(_check_path, json_schema_input_type=_NotEmpty), Takes("path")
]


class WrongParts(ValueError):
    """A component, or one in its settings, is wrong.

    Attributes:
        problems: a line for each problem, with its place.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class _Item:
    index: int
    value: Any


def numbered(most: int) -> BeforeValidator:
    """Return a pydantic validator that lets each component of a list know its index.

    Args:
        most: the most components of a list; one with more is refused, and none of them is made.
    """

    def validate(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        if len(value) > most:
            raise ValueError(f"must have at most {most} items")
        return [_Item(index, item) for index, item in enumerate(value)]

    return BeforeValidator(validate)


def component_at(kind: str) -> PlainValidator:
    """Return a pydantic validator that reads a component of a kind and refuses a wrong one.

    What is wrong is known here as far as `fedmx.components.build.problems_of` says.
    """
    place, names = KINDS[kind].place, KINDS[kind].plural

    def validate(value: Any, info: ValidationInfo) -> Component:
        where: Where = place
        if isinstance(value, _Item):
            where, value = (*place, value.index), value.value
        found = Component.of(value, where, (info.context or {}).get("source"))
        known = read_catalogue()[names]
        if found.is_of_fedmx and found.object is None and found.name not in known:
            raise ValueError(unknown_name(kind, found.name, known))
        # Not at the top: it imports the layers, and a file that cannot be read needs no parts.
        from fedmx.components.build import problems_of

        if problems := problems_of(found):
            raise WrongParts(problems)
        return found

    return PlainValidator(validate)


def default_at(kind: str, name: str) -> Component:
    """Return a component of fedmx as the default of the key that takes its kind."""
    return Component(name, where=KINDS[kind].place)


class _SectionType(ModelMetaclass):
    def __dir__(self) -> list[str]:
        """Return the names of fedmx: the keys, and the methods that are not pydantic's."""
        own = {name for name in super().__dir__() if not hasattr(BaseModel, name)}
        return sorted({*own, *self.model_fields})  # type: ignore[attr-defined]


class Section(BaseModel, metaclass=_SectionType):
    """The root of all sections: frozen, without other keys, NaN and infinities.

    Attributes:
        short_form: the type that a file may give instead of the section; None: there is none.
    """

    short_form: ClassVar[Any] = None

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __dir__(self) -> list[str]:
        """Return the names of its class."""
        return dir(type(self))

    @field_validator("*", mode="before")
    @classmethod
    def _check_bool(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name:
            annotation = cls.model_fields[info.field_name].annotation
            if not takes_bool(annotation):
                raise ValueError(f"must be {in_words(annotation)}, not {shown(value)}")
        return value


@dataclass(frozen=True)
class Executor:
    """An executor besides ``serial``.

    Attributes:
        takes: the type of its key in the section ``executor``; a `Section` has keys of its own.
        default: the value of the key if a file gives the name of the executor alone.
        usage: the values of the option ``--executor``, for messages.
        override: returns the value of the key, as YAML, of the text after ``--executor NAME:``;
            None: the text is wrong.
        start: starts the workers with the value of the key; returns their `Backend`. None: it works
            in this process.
        text: the purpose of the key, in Markdown; empty: the docstring of its section has it.
    """

    takes: Any
    default: Any
    usage: str
    override: Callable[[str], str | None]
    start: Callable[[Any], Any] | None
    text: str = ""
