"""The lines that ``fedmx run --dry-run`` prints: what a simulation would cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedmx.report.quantities import duration, mebibytes

if TYPE_CHECKING:
    from fedmx.simulation.estimate import Estimate


def estimate_document(found: Estimate) -> dict[str, Any]:
    """Return the estimate for ``--json``: sizes in bytes, times in seconds; None: not known.

    ``round_bytes`` and ``bytes`` are those of one round and of all, down and up.
    """
    each = found.task_bytes + found.update_bytes
    round = None if found.cohort is None else each * found.cohort
    return {
        **vars(found),
        "samples": found.samples.tolist(),
        "round_bytes": round,
        "bytes": None if round is None else round * found.rounds,
        "seconds": found.seconds,
    }


def estimate_lines(found: Estimate) -> Iterator[str]:
    """Yield the lines about a simulation that was not run."""
    samples = found.samples
    low, high = int(samples.min()), int(samples.max())
    middle = sorted(samples.tolist())[len(samples) // 2]
    each = f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,})"
    yield f"clients: {len(samples):,} with {each} samples"
    chosen = "as many clients as the selector takes when it has asked them"
    if found.cohort is not None:
        chosen = "1 client" if found.cohort == 1 else f"{found.cohort:,} clients"
    yield f"rounds:  {found.rounds:,}, each with {chosen}, of about {found.steps:,.0f} local steps"
    client = found.task_bytes + found.update_bytes
    line = f"{mebibytes(found.task_bytes)} down and {mebibytes(found.update_bytes)} up per client"
    if found.cohort is not None:
        round = client * found.cohort
        line += f"; about {mebibytes(round)} a round, {mebibytes(round * found.rounds)} in all"
    yield f"bytes:   {line}"
    line = f"{mebibytes(found.process_bytes)} for data, model and one client in one process"
    if found.memory_bytes:
        kept = mebibytes(found.memory_bytes)
        line += (
            f"; hooks keep {kept} a client, {mebibytes(found.memory_bytes * len(samples))} in all"
        )
    yield f"memory:  {line}"
    one = (
        f"a local step takes {1000 * found.step_s:.3g} ms, an evaluation {found.evaluation_s:.2g} s"
    )
    total = "" if found.seconds is None else f"about {duration(found.seconds)} on one core; "
    yield f"time:    {total}{one}"
