"""Panels of bars: the labels of a few clients of a cell, and the clusters that FedSSO finds."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from cells import HERE, cells
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedmx import Assembly


@dataclass(frozen=True)
class Labels:
    """The training samples of each label that the first clients of a cell have, client by client.

    Attributes:
        title: the panel's title.
        labels_of: the cell, with its seed; its data must be there.
        clients: how many clients are drawn.
    """

    title: str
    labels_of: str
    clients: int = 5

    def draw(self, axes: Axes) -> None:
        """Draw a group of bars for each client."""
        (cell,) = cells([self.labels_of])
        assembly = Assembly(cell.experiment())
        y = assembly.data.dataset.train.y
        classes = int(y.max()) + 1
        width = 0.8 / self.clients
        for client in range(self.clients):
            counts = np.bincount(y[assembly.parts[0][client]], minlength=classes)
            axes.bar(np.arange(classes) + width * client - 0.4, counts, width, label=f"{client}")
        axes.set(title=self.title, xlabel="label", ylabel="samples")
        axes.set_xticks(range(classes))
        axes.legend(
            title="client",
            title_fontsize=7,
            fontsize=7,
            ncols=self.clients,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.18),
        )


@dataclass(frozen=True)
class Clusters:
    """Values of a file of records/: how many clusters each setting has, and clients in none.

    Attributes:
        title: the panel's title.
        stored: the file.
    """

    title: str
    stored: str

    def draw(self, axes: Axes) -> None:
        """Draw two bars for each setting, the medians of the seeds."""
        found = json.loads((HERE / "records" / self.stored).read_text())
        labels = {"clusters": "clusters", "in none": "clients in none"}
        for place, (kind, label) in enumerate(labels.items()):
            values = [float(np.median(one[kind])) for one in found.values()]
            bars = axes.barh(np.arange(len(found)) + 0.4 * place - 0.2, values, 0.4, label=label)
            axes.bar_label(bars, fmt="%g", fontsize=7, padding=2)
        axes.set_yticks(range(len(found)), list(found), fontsize=7)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set(title=self.title, xlabel="median of the seeds")
        axes.legend(fontsize=7)
