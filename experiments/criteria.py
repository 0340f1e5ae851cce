"""Criteria that decide claims in words: comparisons of numbers that come from the records.

    {fedsso-E1 rise loss loss} < {fedavg-E1 rise loss loss}
    {T1000 clock accuracy s 95} ~ 0.641 * {fedcs-T1000 clock accuracy s 95}
    {T1000 clock accuracy s 95} < {fedcs-T1000 clock accuracy s 95} < {other clock accuracy s 95}

    {offline-kp-T1500 clock accuracy s 95} < never

Numbers in braces are those of texts.py: the median of the seeds, or `least` or `greatest`. ``~``
means close, as for a table's cells: by a tenth, or a point of percentage. A claim about losses also
compares an accuracy: a model that always says the same has losses, too, and fulfils no claim.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from measures import CLOSE, CLOSE_POINTS
from texts import NUMBER, Numbers

PLAIN = r"(?P<plain>-?[\d.]+|never)"
TERM = re.compile(rf"\s*(?:(?P<times>[\d.]+)\s*\*\s*)?(?:{NUMBER.pattern}|{PLAIN})\s*")
ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SIGN = re.compile(r"(<=|>=|<|>|~)")


def holds(criterion: str, numbers: Numbers) -> bool | None:
    """Return whether a comparison holds; None if a run of it has not come far enough."""
    terms = SIGN.split(criterion)
    values = [_value(term, numbers) for term in terms[::2]]
    if None in values:
        return None
    known = [value for value in values if value is not None]
    percent = any(" %" in term for term in terms[::2])
    return all(
        _compared(left, sign, right, percent)
        for (left, right), sign in zip(pairwise(known), terms[1::2], strict=True)
    )


def verdicts(criteria: Sequence[str], numbers: Numbers) -> list[bool | None]:
    """Return whether each of a claim's comparisons holds; without any, it is open."""
    return [holds(one, numbers) for one in criteria] or [None]


def _value(term: str, numbers: Numbers) -> float | None:
    match = TERM.fullmatch(term)
    assert match, f"no number, and no number in braces: {term!r}"
    factor = float(match["times"] or 1)
    if match["plain"]:
        return factor * float(match["plain"].replace("never", "inf"))
    value = numbers.value(match)
    return None if value is None else factor * value


def _compared(left: float, sign: str, right: float, percent: bool) -> bool:
    if sign != "~":
        neither = math.isinf(left) and math.isinf(right)  # of two targets was reached
        return not neither and ORDERS[sign](left, right)
    most = CLOSE_POINTS if percent else CLOSE * abs(right)
    return math.isfinite(right) and abs(left - right) <= most
