"""The part of a page that shows which clusters a stratified selector found among the clients."""

from __future__ import annotations

import numpy as np

from fedmx.report.figures.html import Html, element, join
from fedmx.report.figures.strata import draw_labels, draw_points
from fedmx.report.records.label_shares import NoLabels, label_shares
from fedmx.report.records.strata import Strata


def strata_section(strata: Strata | None, experiment_yaml: str, label: str | None) -> Html | None:
    """Both figures, or the first and why there is no second; None without any clusters."""
    if strata is None:
        return None
    figures = []
    missing = np.count_nonzero(~np.isfinite(strata.points).all(axis=1))
    if missing < strata.clients.size:
        caption = "What was clustered, projected onto two dimensions (PCA)"
        if missing:
            caption += f"; {missing:,} of {strata.clients.size:,} clients sent nothing of the kind"
        figures.append(_figure(caption, draw_points(strata)))
    left_out = None
    try:
        svg, shown = draw_labels(strata, label_shares(experiment_yaml, strata.clients.tolist()))
    except NoLabels as reason:
        left_out = element(
            "p", f"The clients' label distributions are left out: {reason}", class_="quiet"
        )
    else:
        caption = "Labels of the clients' samples, by the experiment's partition"
        if shown < strata.clients.size:
            caption += f"; {shown:,} of {strata.clients.size:,} clients"
        figures.append(_figure(caption, svg))
    return element(
        "section",
        element("h2", "Clusters" if label is None else f"Clusters of {label}"),
        element("p", _said(strata)),
        element("div", *figures, class_="figures"),
        left_out,
    )


def _said(strata: Strata) -> str:
    sizes = list(strata.clusters.values())
    if not sizes:
        return f"No clusters were found among {strata.clients.size:,} clients."
    least, most = min(sizes), max(sizes)
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    said = f"{len(sizes):,} clusters of {each} clients each"
    if len(sizes) == 1:
        said = f"One cluster of {most:,} clients"
    if strata.noise:
        said += f"; {strata.noise:,} of {strata.clients.size:,} clients are in none (noise, ✕)"
    return f"{said}."


def _figure(caption: str, svg: Html) -> Html:
    return element("figure", join(element("figcaption", caption), svg))
