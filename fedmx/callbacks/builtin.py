"""Callbacks that need no other service: early stopping, the best model, a progress bar."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmx.components.text import unknown
from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.quantities import OF_CLASSES, QUANTITIES, Quantity, is_evaluated
from fedmx.report.formats import SHOW, finite
from fedmx.run.durable import write_text_durably
from fedmx.run.identity import Ending
from fedmx.server.callback import Callback, Running
from fedmx.server.round import Round
from layers.compute.engines.evaluation import ACCURACY

_BESIDES = tuple(one for one in QUANTITIES if one.of and one.better and one.key != ACCURACY)


@dataclass
class EarlyStopping(Callback):
    """Ends a run when a measure has not improved for some evaluations (patience).

    Its state comes from the rounds, so a resumed run ends where the uninterrupted one does.

    Attributes:
        patience: the run ends after this number of evaluations without an improvement; at least 1.
        measure: a metric of the run by its key, as ``accuracy`` or ``macro_f1``,
            ``client_accuracy_mean``, ``loss`` or ``train_loss``; None: the first metric.
        least: a value must be better by more than this to count as an improvement.
    """

    patience: int = 5
    measure: str | None = None
    least: float = 0.0
    _metrics: Sequence[Quantity] = field(default=OF_CLASSES, init=False, repr=False)
    _of: Quantity = field(default=OF_CLASSES[0], init=False, repr=False)
    _values: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.patience, int) or self.patience < 1:
            raise FedmxError(
                f"EarlyStopping: patience must be a whole number from 1, not {self.patience!r}"
            )
        if not (math.isfinite(self.least) and self.least >= 0):
            raise FedmxError(f"EarlyStopping: least must be at least 0, not {self.least!r}")

    def on_begin(self, run: Running) -> None:
        """Read the rounds before a resume.

        Raises:
            FedmxError: the run does not measure it.
        """
        self._metrics = run.quantities
        measured = {one.key: one for one in (*run.quantities, *_BESIDES) if one.unit != "text"}
        if self.measure is not None and self.measure not in measured:
            raise FedmxError(f"EarlyStopping: {unknown('measure', self.measure, measured)}")
        self._of = run.quantities[0] if self.measure is None else measured[self.measure]
        if (
            self.measure == "client_accuracy_mean"
            and run.experiment is not None
            and not run.experiment.compute.evaluate.per_client
        ):
            raise FedmxError(
                "EarlyStopping: client_accuracy_mean is not measured; set "
                "compute.evaluate.per_client to true, in a simulation"
            )
        self._values.clear()
        for record in run.records:
            self._take(record)

    def stop(self, round: Round) -> str | None:
        """Return a reason when the patience is exhausted."""
        for later in [one for one in self._values if one >= round.round]:  # after a step back
            del self._values[later]
        if not self._take(round.record()):
            return None
        of = self._of
        best, at, since = -math.inf, 0, 0
        for number, value in self._values.items():
            since += 1
            if value > best + self.least:
                best, at, since = value, number, 0
        if since < self.patience:
            return None
        if at == 0:
            return f"{of.key} was not finite in {since} evaluations"
        return (
            f"{of.key} is no better than {best * of.sign:.4g} of round {at} "
            f"since {since} evaluation{'s' if since > 1 else ''}"
        )

    def _take(self, record: Mapping[str, Any]) -> bool:
        """Keep a round's value if it was measured; NaN and infinities count as the worst."""
        of = self._of
        if of.key != "train_loss" and not is_evaluated(record, self._metrics):
            return False
        value = finite(record.get(of.key))
        self._values[record["round"]] = -math.inf if value is None else of.sign * value
        return True


BEST = "best.safetensors"


@dataclass
class KeepBest(Callback):
    """Writes the global model whenever the first metric has a new best value.

    A file of the same name with the ending ``.json`` holds the model's round, this value and
    SHA-256. A resumed run reads the best model from it, even if its round is after the checkpoint:
    repeated rounds give the same models.

    Attributes:
        path: the file; None: ``best.safetensors`` in the run folder.
        best_round: the round of the best model; 0: none yet.
        best_value: the metric's value of it; None: none yet.
    """

    path: str | Path | None = None
    best_round: int = field(default=0, init=False)
    best_value: float | None = field(default=None, init=False)
    _run: Running | None = field(default=None, init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        """Read the best model before a resume.

        Raises:
            FedmxError: there is neither a path nor a run folder; the path does not end in
                ``.safetensors``; or the existing files are not fedmx's.
        """
        if self.path is None and run.folder is None:
            raise FedmxError(
                "KeepBest: the run has no folder; give a file, as in KeepBest('best.safetensors')"
            )
        self._run, self.best_round, self.best_value = run, 0, None
        if self.path is not None:
            self._check_files(begins=run.state.round == 0)
        if run.state.round > 0 and self.model_path.exists() and self._about.exists():
            about = json.loads(self._about.read_text("utf-8"))
            self.best_round, self.best_value = about["round"], about.get(run.quantities[0].key)

    def on_round(self, round: Round) -> None:
        """Write the model if it is a new best."""
        if round.stepped_back and self.best_round >= round.round:
            self.best_value = None  # of a round that was undone
        assert self._run is not None
        metric = self._run.quantities[0]
        value = finite(round.evaluation.values.get(metric.key))
        best = self.best_value
        if value is None or not (best is None or metric.is_better(value, best)):
            return
        self.best_round, self.best_value = round.round, value
        self._run.save_model(self.model_path)
        about = {
            "round": round.round,
            metric.key: value,
            "loss": round.loss,
            "model_sha256": round.model_sha256,
        }
        write_text_durably(self._about, json.dumps(about) + "\n")

    def _check_files(self, *, begins: bool) -> None:
        """Check that no file of the user is replaced.

        A resumed run may find a model alone: its process ended before it wrote the JSON file.

        Raises:
            FedmxError: there is one.
        """
        file, alone = self.model_path, not self._about.exists()
        if file.suffix != ".safetensors" or file.is_dir() or (begins and alone):
            check_output(file, "the best model is a safetensors file", (".safetensors",))
        check_output(self._about, "the file beside the best model is JSON", (".json",))

    @property
    def model_path(self) -> Path:
        """The file of the best model."""
        if self.path is not None:
            return Path(self.path)
        assert self._run is not None
        assert self._run.folder is not None
        return self._run.folder.path / BEST

    @property
    def _about(self) -> Path:
        return self.model_path.with_suffix(".json")


@dataclass
class ProgressBar(Callback):
    """Shows the rounds, the first metric and the remaining time with tqdm.

    In a notebook with ipywidgets it is a widget, otherwise a line of text.
    """

    _bar: Any = field(default=None, init=False, repr=False)
    _metric: Quantity = field(default=OF_CLASSES[0], init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        self._metric = run.quantities[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the line of text needs no other package
            from tqdm.auto import tqdm
        self._bar = tqdm(total=run.last_round, initial=run.state.round, unit="round", leave=True)

    def on_round(self, round: Round) -> None:
        of = self._metric
        if (value := round.evaluation.values.get(of.key)) is not None:
            text = SHOW[of.unit](value).replace(" ", "")
            self._bar.set_postfix_str(f"{of.words} {text}", refresh=False)
        self._bar.update(round.round - self._bar.n)

    def on_end(self, status: Ending, reason: str) -> None:
        if self._bar is not None:
            self._bar.close()
