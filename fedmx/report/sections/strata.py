"""The section about the clusters that a stratified selector found among the clients."""

from __future__ import annotations

import numpy as np

from fedmx.report.figures.html import Html, element
from fedmx.report.figures.strata import draw_labels, draw_points
from fedmx.report.figures.svg import captioned
from fedmx.report.records.label_shares import NoLabels, label_shares
from fedmx.report.records.strata import Strata


def strata_section(strata: Strata | None, experiment_yaml: str, label: str | None) -> Html | None:
    """Return the figures of the clusters, or None if there are none.

    If the second figure cannot be drawn, the section says why.
    """
    if strata is None:
        return None
    figures = []
    missing = np.count_nonzero(~np.isfinite(strata.points).all(axis=1))
    if missing < strata.clients.size:
        caption = "The clustered values, projected onto two dimensions (PCA)"
        if missing:
            caption += f"; {missing:,} of {strata.clients.size:,} clients have no value"
        figures.append(captioned(caption, draw_points(strata), "clusters"))
    left_out = None
    try:
        svg, shown = draw_labels(strata, label_shares(experiment_yaml, strata.clients.tolist()))
    except NoLabels as reason:
        left_out = element(
            "p", f"The clients' label distributions are not drawn: {reason}", class_="quiet"
        )
    else:
        caption = "Labels of the clients' samples, by the experiment's partition"
        if shown < strata.clients.size:
            caption += f"; {shown:,} of {strata.clients.size:,} clients"
        figures.append(captioned(caption, svg, "labels of clusters"))
    return element(
        "section",
        element("h2", "Clusters" if label is None else f"Clusters of {label}"),
        element("p", _summary(strata)),
        element("div", *figures, class_="figures"),
        left_out,
    )


def _summary(strata: Strata) -> str:
    sizes = list(strata.clusters.values())
    if not sizes:
        return f"No clusters were found among {strata.clients.size:,} clients."
    least, most = min(sizes), max(sizes)
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    text = f"{len(sizes):,} clusters of {each} clients each"
    if len(sizes) == 1:
        text = f"One cluster of {most:,} clients"
    if strata.noise:
        text += f"; {strata.noise:,} of {strata.clients.size:,} clients are in none (noise, ✕)"
    return f"{text}."
