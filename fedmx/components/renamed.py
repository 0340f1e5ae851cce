"""Names that experiment files used in earlier versions, and the names that replaced them."""

from __future__ import annotations

from collections.abc import Container

from fedmx.components.source import Where

KEYS: dict[Where, str] = {
    ("engine",): "executor",
    ("logic", "select"): "selector",
    ("logic", "aggregate"): "aggregator",
    ("compute", "train", "rate"): "learning_rate",
}
"""The places of old keys, each with the key that stands there now."""

SETTINGS: dict[str, tuple[str, ...]] = {"rate": ("learning_rate", "server_learning_rate")}
"""Old settings of components, each with those that replaced it in one component or another."""


def new_key(where: Where) -> str | None:
    """Return the key that replaced the one at ``where``, or None."""
    return KEYS.get(where)


def new_setting(name: str, known: Container[str]) -> str | None:
    """Return which of a component's ``known`` settings replaced ``name``, or None."""
    return next((new for new in SETTINGS.get(name, ()) if new in known), None)
