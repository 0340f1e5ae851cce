"""What a person sees of a server: its line, its card in a notebook, its records as figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmx.assembly.start_file import name_in_group
from fedmx.display import card, frame_of, scalars
from fedmx.quantities import Quantity, metrics_of
from fedmx.report.formats import SHOW, duration, mebibytes, number
from fedmx.run import RunFolder, export_weights
from fedmx.server.carrier import RunCarrier
from layers.compute.engines.engine import Compute
from layers.logic import ServerState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from fedmx.experiment import Experiment


class Shown:
    """The part of a server that shows its run, and writes its model."""

    network: RunCarrier
    experiment: Experiment | None
    folder: RunFolder | None
    records: list[Mapping[str, Any]]
    state: ServerState
    compute: Compute
    last_round: int
    reason: str

    @property
    def quantities(self) -> Sequence[Quantity]:
        """The metrics of the model; the first one stands for it."""
        return metrics_of(self.compute.metrics, self.compute.engine.targets)

    def note(self, record: Mapping[str, Any]) -> None:
        """Keep the record of a round."""
        self.records.append(scalars(record))

    def remember(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Keep these records, and no others."""
        self.records = [scalars(one) for one in records]

    def to_pandas(self) -> DataFrame:
        """Return a frame with a row for each round until now: metrics, loss, bytes, times.

        Raises:
            FedmxError: pandas is not installed.
        """
        return frame_of(self.records)

    def plot(
        self,
        measure: str | None = None,
        against: str = "rounds",
        *,
        axes: Axes | None = None,
        label: str | None = None,
    ) -> Axes:
        """Draw the rounds until now into axes of matplotlib, and return them.

        Args:
            measure: a metric by its key or ``loss``, of the global model on the server's samples;
                None: the first metric.
            against: ``rounds``, ``local steps``, ``bytes``, ``machine time``, or
                ``virtual time`` of devices.
            axes: where to draw, so that several runs come into one figure; None: a new figure.
            label: of the line, in the legend; None: it has none.

        Raises:
            FedmxError: the measure does not exist, or no round has it.
        """
        # Not at the top: who draws nothing needs no matplotlib.
        from fedmx.report.curves import plot_records

        return plot_records(self.records, self.quantities, measure, against, axes=axes, label=label)

    def save_model(self, path: Path) -> None:
        """Write the global model, one named tensor for each parameter, with the non-trainable ones.

        The models of groups come after it, with the group before each name.

        Raises:
            RunError: it cannot be written.
        """
        engine, state = self.compute.engine, self.state
        models = {"": (state.weights, state.buffers), **state.models}
        layout = [
            (name_in_group(group, tensor.name), tensor.shape)
            for group in models
            for tensor in (*engine.layout, *engine.buffers_layout)
        ]
        export_weights(
            path, layout, np.concatenate([one for both in models.values() for one in both])
        )

    def __repr__(self) -> str:
        parts = [f"round {self.state.round} of {self.last_round}"]
        parts += [f"{label} {text}" for label, text in self._measured() if label != "best"]
        if self.reason:
            parts.append(self.reason)
        return f"<{self._title()}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        sent = [sum(one[key] for one in self.records) for key in ("up_bytes", "down_bytes")]
        rows: list[tuple[str, object]] = [
            ("rounds", f"{self.state.round} of {self.last_round}"),
            ("ended", self.reason or None),
            *self._measured(),
            ("bytes", f"{mebibytes(sent[0])} up, {mebibytes(sent[1])} down"),
            ("time", duration(self.records[-1]["elapsed_s"]) if self.records else None),
            ("folder", self.folder and self.folder.path),
        ]
        return card(self._title(), rows)

    def _title(self) -> str:
        name = "" if self.experiment is None else f" of {self.experiment.name!r}"
        return f"{'Server' if self.network.untrusted else 'Simulation'}{name}"

    def _measured(self) -> list[tuple[str, str]]:
        """Return the last and the best value of the first metric, and the last loss, as texts."""
        # Not at the top: a server in a deployment shows nothing.
        from fedmx.report.summary import Curve, points_of

        run = Curve(points_of(self.records, self.quantities), self.quantities)
        if run.final is None:
            return []
        show = SHOW[run.metric.unit]
        rows = [(run.metric.words, show(run.value(run.final)))]
        if run.best is not None:
            rows.append(("best", f"{show(run.best_value)} in round {run.best.round}"))
        return [*rows, ("loss", number(run.final.loss))]
