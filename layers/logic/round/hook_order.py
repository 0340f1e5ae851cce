"""The order of the hooks, and the check that they can work together in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layers.logic.core.hook import ClientSide, Hook
from layers.logic.errors import LogicError


def in_order(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return the hooks in the order of their stages; hooks of one stage keep their order.

    Raises:
        LogicError: two hooks cannot work together in this order.
    """
    ordered = tuple(sorted(hooks, key=lambda hook: hook.stage))
    _check_one_form("update", [hook for hook in ordered if hook.encodes_update])
    _check_one_form("model", [hook for hook in ordered if hook.encodes_model])
    _check_behind_encoder(ordered)
    return ordered


def keyed(hooks: Sequence[Hook]) -> dict[str, Hook]:
    """Return the hooks by the key of their slot and memory: place and class name."""
    return {f"{place}:{type(hook).__name__}": hook for place, hook in enumerate(hooks)}


def _check_one_form(what: str, encoders: Sequence[Hook]) -> None:
    """Check that only one hook encodes the update, or the model.

    Raises:
        LogicError: several hooks encode it.
    """
    if len(encoders) > 1:
        names = " and ".join(type(hook).__name__ for hook in encoders)
        raise LogicError(f"{names} each encode the {what}, which can have one form only; keep one")


def _check_behind_encoder(ordered: Sequence[Hook]) -> None:
    """Check that no hook works on updates or gradients after they are encoded.

    Only a hook that sets its own `stage` can come after the encoder.

    Raises:
        LogicError: a hook does.
    """
    encoder = ""
    for hook in ordered:
        if encoder and (type(hook.client()).send is not ClientSide.send or hook.corrects):
            name = type(hook).__name__
            raise LogicError(
                f"{name} works on updates or gradients, but comes after {encoder}, which has "
                f"encoded the update; give {name} an earlier stage"
            )
        if hook.encodes_update:
            encoder = type(hook).__name__
