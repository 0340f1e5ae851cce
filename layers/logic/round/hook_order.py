"""The order of the hooks, and the check that they can work together in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layers.logic.core.declaration import Trait
from layers.logic.core.hook import ClientSide, Hook
from layers.logic.errors import LogicError


def in_order(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return the hooks in the order of their stages; hooks of one stage keep their order."""
    return tuple(sorted(hooks, key=lambda hook: hook.stage))


def keyed(hooks: Sequence[Hook]) -> dict[str, Hook]:
    """Return the hooks by the key of their slot and memory: place and class name."""
    return {f"{place}:{type(hook).__name__}": hook for place, hook in enumerate(hooks)}


def check_order(ordered: Sequence[Hook]) -> None:
    """Check that no hook works on updates or gradients after they are encoded.

    Only a hook that sets its own `stage` can come after the encoder.

    Raises:
        LogicError: a hook does.
    """
    encoder = ""
    for hook in ordered:
        client = type(hook.client())
        works = (client.send, client.gradient) != (ClientSide.send, ClientSide.gradient)
        if encoder and works:
            name = type(hook).__name__
            raise LogicError(
                f"{name} works on updates or gradients, but comes after {encoder}, which has "
                f"encoded the update; give {name} an earlier stage"
            )
        if Trait.ENCODES_UPDATE in hook.provides:
            encoder = type(hook).__name__
