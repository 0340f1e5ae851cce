"""What a hook adds to the gradient of each local step, written for one client and for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Vector: TypeAlias = Any
"""float32 (d,) of numpy; of many clients (k, d), of the engine's library."""


@dataclass(eq=False)
class GradientTerm:
    """The term shift + pull (w - start), which each step adds to its gradient at the weights w.

    A hook that changes gradients in this way alone declares it (`ClientSide.term`), so that many
    clients can train at once.

    Attributes:
        start: the weights that local training starts from.
        shift: a vector; None: none.
        later: the factor of the shift in all steps after the first.
        pull: the weight of the proximal term.
    """

    start: Vector
    shift: Vector | None = None
    later: float = 1.0
    pull: float = 0.0

    def add(self, gradient: Vector, weights: Vector) -> None:
        """Add the term in place; of many clients, the first ones may be given."""
        rows = slice(len(gradient))
        if self.shift is not None:
            gradient += self.shift[rows]
            if self.later != 1:
                self.shift, self.later = self.shift * np.float32(self.later), 1.0
        if self.pull:
            gradient += (weights - self.start[rows]) * np.float32(self.pull)

    @classmethod
    def stacked(
        cls, terms: Sequence[GradientTerm | None], put: Callable[[np.ndarray], Any]
    ) -> GradientTerm:
        """Return one term of many clients.

        Args:
            terms: each client's term of one hook; None for some: there the hook adds nothing.
            put: gives an array (k, d) to the engine's library.
        """
        given = next(one for one in terms if one is not None)

        def matrix(rows: Sequence[np.ndarray | None]) -> Any:
            none = np.zeros_like(given.start)
            return put(np.stack([none if row is None else row for row in rows]))

        starts = [None if one is None else one.start for one in terms]
        shifts = [None if one is None else one.shift for one in terms]
        return cls(
            start=matrix(starts) if given.pull else None,
            shift=None if all(one is None for one in shifts) else matrix(shifts),
            later=given.later,
            pull=given.pull,
        )
