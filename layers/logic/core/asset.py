"""An asset: samples that every client is given once, before its first round."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from layers.logic.core.engine import Data
from layers.logic.errors import LogicError

NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Asset:
    """Training samples, balanced over the classes, that the server gives to every client.

    They are taken out of the training samples, so that no sample counts twice: no two assets have
    a sample in common, and no client has one of them among its own.

    Attributes:
        share: their share of all training samples, above 0 and below 1.

    Raises:
        LogicError: the share is not between 0 and 1.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise LogicError(f"an asset's share must lie between 0 and 1, not {self.share}")


class Declares(Protocol):
    """Something that declares assets, as hooks do."""

    @property
    def assets(self) -> Mapping[str, Asset]: ...


def declared_assets(hooks: Iterable[Declares]) -> dict[str, Asset]:
    """Return the assets of all hooks by name, in the order of the hooks.

    Raises:
        LogicError: a name is not fit for a file, a name is declared twice, or a value is not an
            asset.
    """
    found: dict[str, Asset] = {}
    owners: dict[str, str] = {}
    for hook in hooks:
        owner = type(hook).__name__
        for name, asset in hook.assets.items():
            if NAME.fullmatch(name) is None:
                raise LogicError(
                    f"{owner}: {name!r} is not an asset's name; use up to 64 of a-z, 0-9, _ and -, "
                    "a letter first"
                )
            if not isinstance(asset, Asset):
                raise LogicError(f"{owner}: asset {name!r} must be an Asset, not {asset!r}")
            if name in found:
                raise LogicError(
                    f"{owner}: {owners[name]} also declares an asset {name!r}; give one of them "
                    "another name"
                )
            found[name], owners[name] = asset, owner
    return found


def assets_of(hook: Declares, available: Mapping[str, Data]) -> dict[str, Data]:
    """Return the client's assets that a hook declares.

    Args:
        hook: the hook.
        available: all assets of the client, by name.

    Raises:
        LogicError: the client lacks one of them.
    """
    for name in hook.assets:
        if name not in available:
            raise LogicError(
                f"{type(hook).__name__}: this client was not given the asset {name!r}; run an "
                "experiment, whose server sends it, or give layers.logic.answer the argument assets"
            )
    return {name: available[name] for name in hook.assets}
