"""The clusters of clients that a stratified selector found, and the labels of their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.experiment.reader import parse_text
from fedmx.report.html import Html, element
from fedmx.report.summary import RunSummary
from fedmx.report.svg import INK, PANEL, QUIET, RUN, captioned, html_of, new_figure, style_axes
from fedmx.run import RunError
from fedmx.run.checkpoint import keeps
from layers.logic.algorithms.fedsso import NOISE as NOISE
from layers.logic.algorithms.fedsso import STRATA, Clustering
from layers.logic.core.selector import SELECT
from layers.logic.errors import LogicError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Strata:
    """N clients with their clusters.

    Attributes:
        clients: int (N,), their ids.
        labels: int (N,), the cluster of each; -1: none.
        points: float (N, 2), the first principal components of the clustered values; NaN for a
            client without a value.
    """

    clients: np.ndarray
    labels: np.ndarray
    points: np.ndarray

    @property
    def clusters(self) -> dict[int, int]:
        """The number of clients in each cluster, in the order of the labels, without noise."""
        labels, sizes = np.unique(self.labels[self.labels != NOISE], return_counts=True)
        return dict(zip(labels.tolist(), sizes.tolist(), strict=True))

    @property
    def noise(self) -> int:
        """The number of clients in no cluster."""
        return int(np.count_nonzero(self.labels == NOISE))

    def by_cluster(self) -> np.ndarray:
        """Return the clients' indices in the order of their clusters, noise last: int (N,)."""
        places: np.ndarray = np.lexsort((self.clients, self.labels, self.labels == NOISE))
        return places


def strata_of(run: RunSummary) -> Strata | None:
    """Return the clusters of a run; None: it has none, or no readable checkpoint."""
    # A checkpoint can be large: read it only if the selector keeps clusters.
    paths = map(run.folder.checkpoint_path, run.folder.checkpoint_rounds)
    if not any(keeps(path, "server", "memory", SELECT, STRATA) for path in paths):
        return None
    try:
        checkpoint = run.folder.latest_checkpoint()
    except RunError:
        return None
    state = {} if checkpoint is None else checkpoint.state
    try:
        found = Clustering.of(state["server"]["memory"][SELECT])
    except (KeyError, TypeError, LogicError):
        return None
    if found.clients.size == 0:
        return None
    return Strata(found.clients, found.labels, found.points)


class NoLabels(FedmxError):
    """The data or their partition are not available."""


def label_shares(experiment_yaml: str, clients: Sequence[int]) -> np.ndarray:
    """Return the share of each label in a client's samples.

    A report may be about another user's run: nothing is downloaded, and no module that the
    experiment names is imported.

    Args:
        experiment_yaml: the experiment.
        clients: the ids of the clients.

    Returns:
        Float64 (clients, classes); a row adds up to 1, or to 0 for a client without samples.

    Raises:
        NoLabels: the data are not on this machine, are the user's own, or have no such client.
    """
    # Not at the top: only this function needs the compute layer and MXNet.
    from fedmx.assembly.assembly import Assembly
    from layers.compute.data.datasets import Files
    from layers.compute.errors import ComputeError

    try:
        tree, _ = parse_text(experiment_yaml, "experiment.yaml")
        compute = {key: tree["compute"][key] for key in ("data", "partition")}
        # Other keys do not change the data, and may name code that this machine lacks.
        kept = {"rounds": 1, "compute": {"model": "2nn", **compute}, "logic": _hooks(tree)}
        kept |= {key: tree[key] for key in ("seed", "clients")}
        experiment = Experiment.parse(yaml.safe_dump(kept), "experiment.yaml", modules=())
        assembly = Assembly(experiment, Files(download=False))
        classes, number = assembly.data.dataset.targets.classes, len(assembly.sizes())
    except (KeyError, TypeError, yaml.YAMLError):
        raise NoLabels("the experiment does not name its data") from None
    except (FedmxError, ComputeError, OSError) as error:
        raise NoLabels(str(error).partition("\n")[0]) from None
    if not classes:
        raise NoLabels("the targets of the data are not classes")
    if not all(0 <= client < number for client in clients):
        raise NoLabels(f"the partition has {number} clients, and the run had others")
    counts = [np.bincount(assembly.labels_of(client), minlength=classes) for client in clients]
    counted = np.array(counts, dtype=np.float64).reshape(len(clients), classes)
    shares: np.ndarray = counted / np.maximum(counted.sum(axis=1, keepdims=True), 1)
    return shares


def _hooks(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the logic section without user code; its hooks can hold samples back."""
    logic = tree.get("logic") or {}
    hooks = [hook for hook in logic.get("hooks") or () if not _is_user_code(hook)]
    preset = logic.get("preset")
    return {
        "hooks": hooks,
        **({} if preset is None or _is_user_code(preset) else {"preset": preset}),
    }


def _is_user_code(component: Any) -> bool:
    name = component["name"] if isinstance(component, Mapping) else component
    return ":" in str(name)


_COLOURS = [colour for index, colour in enumerate(RUN) if index != 6]  # 6 is grey, for noise
_MARKERS = "os^DvP<>"
_MAX_NUMBERED = 40  # clusters; more numbers would hide the points
_MAX_BARS = 200
_MAX_SEPARATED = 60  # more bars are too narrow for gaps between them


def draw_points(strata: Strata) -> Html:
    """Return a plot of the principal components; each cluster has a colour, shape and number."""
    placed = np.isfinite(strata.points).all(axis=1)
    with new_figure(5.0, 3.6) as figure:
        axes = figure.add_subplot()
        style_axes(axes, "first principal component", "second principal component")
        for index, label in enumerate([*strata.clusters, NOISE]):
            chosen = strata.points[placed & (strata.labels == label)]
            if not len(chosen):
                continue
            noise = label == NOISE
            turn = index // len(_COLOURS) % len(_MARKERS)
            axes.plot(
                *chosen.T,
                linestyle="",
                marker="x" if noise else _MARKERS[turn],
                markersize=4 if noise else 5,
                markeredgewidth=0.9 if noise else 0.5,
                markeredgecolor=QUIET if noise else PANEL,
                markerfacecolor=_colour(index),
            )
            if not noise and len(strata.clusters) <= _MAX_NUMBERED:
                axes.annotate(
                    str(label),
                    chosen.mean(axis=0),
                    xytext=(5, 5),
                    textcoords="offset points",
                    color=INK,
                    fontsize=8,
                    fontweight="bold",
                )
        axes.margins(0.08)
        axes.ticklabel_format(scilimits=(-3, 4), useOffset=False)
        return html_of(figure, "Clients by cluster, principal components")


def draw_labels(strata: Strata, shares: np.ndarray) -> tuple[Html, int]:
    """Return a plot with a bar for each client, stacked by label, and the number of its bars.

    Args:
        strata: N clients; the bars are in the order of the clusters.
        shares: (N, classes), the share of each label in a client's samples.
    """
    order = strata.by_cluster()
    if len(order) > _MAX_BARS:
        order = order[np.linspace(0, len(order) - 1, _MAX_BARS).astype(int)]
    labels = strata.labels[order]
    edges = np.arange(len(order) + 1)
    heights = 100 * np.cumsum(shares[order], axis=1)
    with new_figure(5.0, 3.6) as figure:
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import BoundaryNorm

        axes = figure.add_subplot()
        style_axes(axes, "clients, by cluster", "samples with a label, %")
        axes.grid(visible=False)
        classes = shares.shape[1]
        # Even steps from dark to light also show the order of the labels without colour.
        colours = colormaps["viridis"].resampled(max(classes, 2))
        below = np.zeros(len(order))
        for label in range(classes):
            above = heights[:, label]
            axes.stairs(above, edges, baseline=below, fill=True, color=colours(label))
            below = above
        _mark_clusters(axes, labels, strata)
        if len(order) <= _MAX_SEPARATED:
            axes.vlines(edges[1:-1], 0, 100, color=PANEL, linewidth=0.8)
        axes.set_xlim(0, len(order))
        axes.set_ylim(-6, 100)
        norm = BoundaryNorm(np.arange(classes + 1) - 0.5, max(classes, 2))
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.02, aspect=30)
        bar.set_ticks(range(0, classes, -(-classes // 12)))
        bar.set_label("label", color=INK)
        bar.ax.tick_params(colors=INK, length=0)
        bar.ax.set_frame_on(False)
        return html_of(figure, "Labels of the clients' samples by cluster"), len(order)


def _mark_clusters(axes: Axes, labels: np.ndarray, strata: Strata) -> None:
    """Draw the colour of each cluster below its bars, and its number if there is room."""
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    ends = np.append(starts[1:], len(labels))
    index = {label: place for place, label in enumerate([*strata.clusters, NOISE])}
    ticks: dict[float, str] = {}
    for start, end in zip(starts, ends, strict=True):
        label = int(labels[start])
        colour = QUIET if label == NOISE else _colour(index[label])
        axes.bar(start, -4.5, end - start, -1.5, align="edge", color=colour, linewidth=0)
        axes.axvline(end, color=PANEL, linewidth=1.4)
        middle, text = (start + end) / 2, "none" if label == NOISE else str(label)
        room = 0.014 * len(labels) * (len(text) + 1)
        if not ticks or middle - max(ticks) >= room:
            ticks[middle] = text
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(axis="x", length=0, labelsize=7.5)


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def strata_section(run: RunSummary, label: str | None) -> Html | None:
    """Return the figures of the clusters; None: the run has no clusters.

    If the labels cannot be drawn, the section says why.
    """
    strata = strata_of(run)
    if strata is None:
        return None
    figures = []
    missing = np.count_nonzero(~np.isfinite(strata.points).all(axis=1))
    if missing < strata.clients.size:
        caption = "The clustered values, projected onto two dimensions (PCA)"
        if missing:
            caption += f"; without a value: {missing:,} of {strata.clients.size:,} clients"
        figures.append(captioned(caption, draw_points(strata), "clusters"))
    left_out = None
    try:
        if run.folder.facts.get("mode") == "server":
            raise NoLabels("the run was deployed, and its clients alone have their samples")
        shares = label_shares(run.folder.experiment_yaml, strata.clients.tolist())
        svg, shown = draw_labels(strata, shares)
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
        text += f"; in none (noise, ✕): {strata.noise:,} of {strata.clients.size:,} clients"
    return f"{text}."
