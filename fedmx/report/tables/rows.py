"""Tidy rows: one for each run, and one for each run and round."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from fedmx.report.records.groups import Group, seed_of
from fedmx.report.records.points import Point
from fedmx.report.records.settings import ABSENT
from fedmx.report.records.summary import RunSummary
from fedmx.report.records.verdict import verdict
from fedmx.run import RunFolder


def run_rows(
    groups: Sequence[Group], folders: Sequence[RunFolder], target: float | None
) -> list[dict[str, Any]]:
    """Return one row for each run.

    Args:
        groups: the runs.
        folders: of each run, in the same order.
        target: an accuracy; None: then the columns of the target are empty.
    """
    places = iter(folders)
    return [
        {
            **_which(group, seed_of(run)),
            **_settings(groups, group),
            "run": str(next(places).path),
            "status": run.status,
            "verdict": verdict(run, target).words,
            "rounds_run": run.points[-1].round if run.points else 0,
            "final_accuracy": final.accuracy if (final := run.final()) else None,
            "best_accuracy": best.accuracy if (best := run.best()) else None,
            "best_round": best.round if best else None,
            "final_loss": run.final_loss(),
            "final_client_accuracy": p.client_accuracy if (p := run.final_by_client()) else None,
            "up_bytes": int(run.up_bytes),
            "down_bytes": int(run.down_bytes),
            "seconds": run.seconds,
            "virtual_s": run.virtual_s,
            "target": target,
            "rounds_to_target": hit.round if (hit := _reached(run, target)) else None,
            "bytes_to_target": int(hit.bytes) if hit else None,
        }
        for group in groups
        for run in group.runs
    ]


def curve_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return one row for each run and round."""
    return [
        {
            **_which(group, seed_of(run)),
            **_settings(groups, group),
            "round": point.round,
            "accuracy": point.accuracy,
            "loss": point.loss,
            "train_loss": point.train_loss,
            "client_accuracy": point.client_accuracy,
            "bytes": int(point.bytes),
            "time_s": point.time_s,
            "virtual_s": point.virtual_s,
        }
        for group in groups
        for run in group.runs
        for point in run.points
    ]


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV with a line of the columns' names; None is an empty field."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _reached(run: RunSummary, target: float | None) -> Point | None:
    return None if target is None else run.reached(target)


def _which(group: Group, seed: str) -> dict[str, Any]:
    return {"fedmx_group": group.name, "seed": int(seed) if seed.isdigit() else seed}


def _settings(groups: Sequence[Group], group: Group) -> dict[str, Any]:
    paths = dict.fromkeys(path for one in groups for path in one.settings)
    texts = {path: group.settings.get(path, ABSENT) for path in paths}
    return {path: None if text == ABSENT else text for path, text in texts.items()}
