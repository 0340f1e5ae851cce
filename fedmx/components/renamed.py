"""Names of earlier versions in experiment files and commands, and the names that replaced them."""

from __future__ import annotations

from collections.abc import Container

from fedmx.components.source import Where

KEYS: dict[Where, str] = {
    ("engine",): "executor",
    ("logic", "select"): "selector",
    ("logic", "aggregate"): "aggregator",
    ("compute", "train", "rate"): "learning_rate",
}
"""The place of each old key, with the key that replaced it."""

SETTINGS: dict[str, tuple[str, ...]] = {"rate": ("learning_rate", "server_learning_rate")}
"""Old settings of components. A component has at most one of the settings that replaced each."""

OPTIONS: dict[str, str] = {"--engine": "--executor"}
"""Old options of commands, each with the option that replaced it."""


def new_key(where: Where) -> str | None:
    """Return the key that replaced the old one at the place ``where``, or None."""
    return KEYS.get(where)


def new_setting(name: str, known: Container[str]) -> str | None:
    """Return which of a component's ``known`` settings replaced the old ``name``, or None."""
    return next((new for new in SETTINGS.get(name, ()) if new in known), None)


def new_option(name: str, known: Container[str]) -> str | None:
    """Return which of a command's ``known`` options replaced the old ``name``, or None."""
    new = OPTIONS.get(name)
    return new if new in known else None


def renamed_text(new: str) -> str:
    """Return what a message says of an old name that ``new`` replaced."""
    return f"is called {new} now; write {new}"
