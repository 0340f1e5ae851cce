"""The check of all parts of a logic, before anything runs."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from layers.logic.core.aggregator import Aggregator
from layers.logic.core.attack import Attack, Collusion
from layers.logic.core.declaration import Need, Part, Trait, with_inner
from layers.logic.core.hook import ClientSide, Hook, ServerSide
from layers.logic.core.selector import Selector
from layers.logic.core.trainer import Trainer
from layers.logic.errors import LogicError

KINDS: Mapping[type, str] = {
    Collusion: "collusion",
    Attack: "attack",
    Hook: "hook",
    ServerSide: "server side",
    ClientSide: "client side",
    Selector: "selector",
    Aggregator: "aggregator",
    Trainer: "trainer",
}
"""The name of each base class of parts, in messages."""

NEAR = 0.75  # similarity, up to 1, of a misspelt name and the intended one


def check_kind(kind: str, value: Any, root: type) -> None:
    """Check that a part is an object of its kind.

    Raises:
        LogicError: it is something else; the message names the right form.
    """
    if isinstance(value, root):
        return
    name = getattr(value, "__name__", None) or type(value).__name__
    if isinstance(value, type) and issubclass(value, root):
        raise LogicError(f"{name} is not {_a(kind)} but a class; make an object of it: {name}()")
    text = f"an object of {name}" if " object at 0x" in repr(value) else repr(value)
    own = value if isinstance(value, type) else type(value)
    written = f", class {name}({root.__name__})" if own.__module__ != "builtins" else ""
    raise LogicError(
        f"{text} is not {_a(kind)}; it must be an instance of a class derived from "
        f"fedmx.{root.__name__}{written}{at_place(own)}"
    )


def check_part(part: Any) -> None:
    """Check a part, those in its settings, and the sides of a hook.

    Raises:
        LogicError: something is wrong; the message says what and where.
    """
    for one in with_inner(part):
        _check_settings(type(one), _root(one))
        for kind, root in _classes(one):
            check_methods(kind, root)
        if isinstance(one, Part):
            _check_declarations(one)
        if isinstance(one, Selector):
            _check_runs(one)


def _check_runs(selector: Selector) -> None:
    """Check that a selector says how a round goes.

    Raises:
        LogicError: it has neither of the two methods.
    """
    ours = [getattr(one, "__func__", None) for one in (selector.run, selector.select)]
    if ours == [Selector.run, Selector.select]:
        raise LogicError(
            f"{class_name(type(selector))} has neither run nor select; write def run(self, round) "
            f"or def select(self, round){at_place(type(selector))}"
        )


def possible_mistakes(parts: Iterable[Any]) -> Iterator[str]:
    """Yield a line for each public method of the parts that fedmx never calls."""
    known = {name for root in KINDS for name in dir(root)}
    for part in (inner for one in parts for inner in with_inner(one)):
        for kind, root in _classes(part):
            ours = {name for one in kind.__mro__ if _is_ours(one) for name in vars(one)}
            for name, own in _own_names(kind, root):
                if inspect.isfunction(own) and name not in known | ours:
                    yield (
                        f"{class_name(kind)}.{name} is not {_a(_word(root))} method, and fedmx "
                        f"never calls it; begin the name of a helper with _{at_place(own)}"
                    )


def _classes(part: Any) -> Iterator[tuple[type, type]]:
    """Yield the class of a part and those of its sides, each with that of the framework.

    Raises:
        LogicError: a hook cannot make a side, or makes something else.
    """
    yield type(part), _root(part)
    if not isinstance(part, Hook):
        return
    for word, kind in (("Server", ServerSide), ("Client", ClientSide)):
        _check_side(type(part), word, kind)
        make = getattr(part, word.lower())
        name = f"{class_name(type(part))}.{word.lower()}()"
        try:
            side: object = make()
        except LogicError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise LogicError(f"{name} failed: {what}{at_place(make)}") from error
        if not isinstance(side, kind):
            is_class = isinstance(side, type)
            shown = f"the class {side.__name__}" if is_class else repr(side)  # type: ignore[attr-defined]
            raise LogicError(
                f"{name} returned {shown}; it must return an object of a class derived from "
                f"{kind.__name__}{at_place(make)}"
            )
        if not hasattr(side, "hook"):
            raise LogicError(
                f"{class_name(type(side))} does not know its hook; begin its __init__(self, hook) "
                f"with super().__init__(hook){at_place(type(side))}"
            )
        yield type(side), kind


def _check_side(hook: type, word: str, kind: type) -> None:
    """Check that a hook's side is a class in it.

    Args:
        hook: the class of the hook.
        word: Server or Client, the name of the side.
        kind: the class of the framework that the side derives from.

    Raises:
        LogicError: it is something else, or stands under the name of the method that makes it.
    """
    form = f"class {word}({kind.__name__}): ... in {class_name(hook)}"
    side, make = getattr(hook, word), inspect.getattr_static(hook, word.lower())
    if not inspect.isclass(side) or not issubclass(side, kind):
        raise LogicError(
            f"{class_name(hook)}.{word} must be a class derived from fedmx.{kind.__name__}; write "
            f"{form}{at_place(side if inspect.isclass(side) else hook)}"
        )
    if not inspect.isfunction(make):
        raise LogicError(
            f"{class_name(hook)}.{word.lower()} is the method that makes the side, and not the "
            f"side; write {form}{at_place(hook)}"
        )


def _check_declarations(part: Part) -> None:
    """Check that a part declares needs and traits, each in its place.

    Raises:
        LogicError: it does not.
    """
    for name, kind in (("requires", Need), ("provides", Trait)):
        value = getattr(part, name)
        if not isinstance(value, Set) or not all(isinstance(one, kind) for one in value):
            raise LogicError(
                f"{type(part).__name__}.{name} must be a set of fedmx.{kind.__name__}, not {value}"
            )


def _check_settings(part: type, root: type) -> None:
    """Check that a part's settings are the fields of a frozen dataclass.

    Raises:
        LogicError: they are not, so that no file and no report could say them.
    """
    for one in part.__mro__:
        if one in root.__mro__ or _is_ours(one):
            continue
        made: Any = vars(one).get("__dataclass_params__")
        declared = [
            name
            for name, hint in vars(one).get("__annotations__", {}).items()
            if not (name.startswith("_") or "ClassVar" in str(hint) or name in dir(root))
        ]
        own = vars(one).get("__init__")
        if made is None and inspect.isfunction(own):
            declared += list(inspect.signature(own).parameters)[1:]
        if declared and (made is None or not made.frozen):
            raise LogicError(
                f"{one.__name__} has the settings {', '.join(declared)}, which are not the fields "
                f"of a frozen dataclass; write @dataclass(frozen=True) above its class"
                f"{at_place(one)}"
            )


def check_methods(part: type, root: type) -> None:
    """Check a part's public names against those of the class that it is derived from.

    Args:
        part: the class of the part.
        root: the class of the framework, such as a key of `KINDS`.

    Raises:
        LogicError: a method cannot be called as the framework does, is one of another kind of part,
            or has nearly the name of one that the part does not have.
    """
    theirs = {
        name: inspect.getattr_static(root, name) for name in dir(root) if not name.startswith("_")
    }
    own_names = dict(_own_names(part, root))
    for name, own in own_names.items():
        full = f"{class_name(part)}.{name}"
        if name in theirs:
            if inspect.isfunction(own):
                _check_parameters(full, own, theirs[name])
            continue
        missing = [one for one in theirs if one not in own_names]
        near = difflib.get_close_matches(name, missing, 1, NEAR) or [
            one for one in missing if one.replace("_", "") == name.lower()
        ]
        if near and name not in getattr(part, "__dataclass_fields__", ()):
            what = "method" if inspect.isfunction(own) else "attribute"
            raise LogicError(
                f"{full} is not {_a(_word(root))} {what}; did you mean {near[0]!r}?"
                f"{at_place(own if what == 'method' else part)}"
            )
        kinds = [kind for kind in KINDS if hasattr(kind, name)]
        if kinds and inspect.isfunction(own) and not issubclass(part, tuple(kinds)):
            others = " or ".join(_a(KINDS[kind]) for kind in kinds)
            raise LogicError(
                f"{full} is a method of {others}, and {class_name(part)} is {_a(_kind(root))}: "
                f"fedmx never calls it; move it{at_place(own)}"
            )


def _check_parameters(full: str, own: Callable[..., Any], theirs: Any) -> None:
    """Check that a method takes the arguments of the framework's call.

    Raises:
        LogicError: it does not.
    """
    if not callable(theirs):
        raise LogicError(
            f"{full} is a method, which counts as true whatever it returns; write @property above "
            f"it{at_place(own)}"
        )
    signature, wanted = inspect.signature(own), list(inspect.signature(theirs).parameters)
    try:
        signature.bind(*wanted)
    except TypeError:
        name = full.rpartition(".")[2]
        raise LogicError(
            f"{full} takes {signature}, and is called with ({', '.join(wanted[1:])}); write "
            f"def {name}({', '.join(wanted)}){at_place(own)}"
        ) from None
    if inspect.isgeneratorfunction(theirs):
        if not inspect.isgeneratorfunction(own):
            raise LogicError(
                f"{full} waits for nothing; write yield from before a call that waits, such as "
                f"round.until_all(){at_place(own)}"
            )
    elif inspect.iscoroutinefunction(own) or inspect.isgeneratorfunction(own):
        raise LogicError(
            f"{full} is a coroutine or a generator, so a call runs nothing; write a plain "
            f"function without async and yield{at_place(own)}"
        )


def _own_names(part: type, root: type) -> Iterator[tuple[str, Any]]:
    """Yield each public name that a part has from its own classes, and its value."""
    for name in dir(part):
        holder = next((one for one in part.__mro__ if name in vars(one)), object)
        if not (name.startswith("_") or holder in root.__mro__ or _is_ours(holder)):
            own = inspect.getattr_static(part, name)
            yield name, own.__func__ if isinstance(own, classmethod) else own


def _is_ours(holder: type) -> bool:
    """Return whether a class is the framework's own, or Python's."""
    return holder.__module__.partition(".")[0] in ("layers", "fedmx", "builtins", "abc", "typing")


def _root(part: Any) -> type:
    return next(kind for kind in KINDS if isinstance(part, kind))


def _kind(root: type) -> str:
    return KINDS.get(root, root.__name__.lower())


def _word(root: type) -> str:
    """Return the word before "method" in messages; the sides of a hook have hook methods."""
    return "hook" if root in (ServerSide, ClientSide) else _kind(root)


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def class_name(one: type) -> str:
    """Return the name of a class in messages: that of a hook's side has the hook's before it."""
    return one.__qualname__.rpartition("<locals>.")[2]


def place_of_code(code: Callable[..., Any] | type) -> str:
    """Return ``FILE:LINE`` of a function, method or class; empty if its source is not known."""
    if not inspect.isclass(code):
        plain = getattr(inspect.unwrap(code), "__code__", None)
        return f"{plain.co_filename}:{plain.co_firstlineno}" if plain is not None else ""
    try:
        return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"
    except (OSError, TypeError):
        return ""


def at_place(code: Callable[..., Any] | type) -> str:
    """Return `place_of_code` in brackets after a space; empty if it is not known."""
    place = place_of_code(code)
    return f" ({place})" if place else ""
