"""The preset oort."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.oort.selector import Oort
from layers.logic.core.preset import Preset


def oort(
    fraction: float = 0.1,
    alpha: float = 2.0,
    percentile: float = 30.0,
    most_rounds: int | None = None,
    ask_times: bool = True,
) -> Preset:
    """Oort (Lai et al. 2021): clients whose loss is high and who are fast, and some new ones.

    Args:
        fraction: C, the share of the clients in a round.
        alpha: penalty on those that take longer than T; 0: time does not count.
        percentile: T, among the clients' seconds, at first; the pacer moves it.
        most_rounds: in which a client takes part before it is left out; None: any number.
        ask_times: whether clients say once, before they train, how long they will take.
    """
    selector = Oort(
        fraction,
        alpha=alpha,
        percentile=percentile,
        most_rounds=most_rounds,
        ask_times=ask_times,
    )
    return Preset(selector, Mean())
