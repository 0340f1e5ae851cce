"""Callbacks that send a run to MLflow or Weights & Biases."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedmx.callbacks.builtin import BEST
from fedmx.errors import FedmxError
from fedmx.privacy.published import published
from fedmx.report.summary import as_text, read_settings
from fedmx.run.identity import Ending
from fedmx.server.callback import Callback, Running
from fedmx.server.round import Round
from layers.extras import install


def name_of(run: Running) -> str:
    """Return the run folder's name, or else the experiment's."""
    if run.folder is not None:
        return run.folder.name
    return "fedmx" if run.experiment is None else run.experiment.name


def settings_of(run: Running) -> dict[str, str]:
    """Return the experiment's settings as text, each under its dotted path."""
    if run.experiment is None:
        return {}
    settings = read_settings(run.experiment.to_yaml())
    return {key: as_text(value) for key, value in settings.items()}


def numbers_in(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a round's record, without the round's number."""
    return {
        key: float(value)
        for key, value in record.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and key != "round"
        and math.isfinite(value)
    }


def files_of(run: Running) -> list[Path]:
    """Return the files of the run folder that a tracker may keep."""
    if run.folder is None:
        return []
    path = run.folder.path
    files = [path / "experiment.yaml", run.folder.model_path, path / BEST]
    if not run.confidential:  # the report tells who took part
        files.append(run.folder.report_path)
    return [file for file in files if file.exists()]


def reason_of(run: Running, reason: str) -> str:
    """Return why a run ended, as a tracker may have it: the reason may name clients."""
    return "" if run.confidential else reason


@dataclass
class Tracker(Callback):
    """Sends each round's numbers once, including those before a resume.

    After a step back, a repeated round is sent again. Of a private deployment, only what
    `published` lets through is sent.
    """

    _run: Running | None = field(default=None, init=False, repr=False)  # once it is known there
    _sent: int = field(default=0, init=False, repr=False)  # the last round that the tracker has

    @abstractmethod
    def _send(self, round: int, numbers: Mapping[str, float]) -> None:
        """Send the numbers of a round."""

    def _go_on(self, run: Running, sent: int) -> None:
        """Send the rounds that the tracker does not have yet."""
        self._run, self._sent = run, sent
        for record in run.records:
            self._send_once(record)

    def on_round(self, round: Round) -> None:
        if round.stepped_back:
            self._sent = min(self._sent, round.round - 1)
        self._send_once(round.record())

    def _send_once(self, record: Mapping[str, Any]) -> None:
        if record["round"] > self._sent:
            confidential = self._run is not None and self._run.confidential
            self._send(record["round"], numbers_in(published(record) if confidential else record))
            self._sent = record["round"]


_TAG = "fedmx.run"  # the run's id in fedmx
_MOST_PARAMS = 100  # the limit of MLflow for one call
_LONGEST = 500  # characters of a value, accepted by every version of MLflow
_STATUS = {"done": "FINISHED", "stopped": "KILLED", "interrupted": "KILLED", "failed": "FAILED"}


@dataclass
class MLflowLogger(Tracker):
    """Logs a run to MLflow; needs the extra ``mlflow``.

    A resumed run continues its MLflow run, found by the id in run.json; rounds that MLflow already
    has are not logged again.

    Attributes:
        experiment: the experiment in MLflow; created if it does not exist.
        tracking_uri: the MLflow server; None: MLFLOW_TRACKING_URI.
        run_name: None: the name of the run folder.
        files: whether to keep experiment, model and report as artifacts.
        run_id: the id of the run in MLflow.
    """

    experiment: str = "fedmx"
    tracking_uri: str | None = None
    run_name: str | None = None
    files: bool = True
    run_id: str = field(default="", init=False)
    _client: Any = field(default=None, init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        """Start an MLflow run, or find the one to continue.

        Raises:
            FedmxError: MLflow is not installed, or cannot be reached.
        """
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError:
            raise FedmxError(f"MLflowLogger needs MLflow; {install('mlflow')}") from None
        try:
            self._client = MlflowClient(tracking_uri=self.tracking_uri)
            known = self._client.get_experiment_by_name(self.experiment)
            number = known and known.experiment_id
            number = number or self._client.create_experiment(self.experiment)
        except MlflowException as error:
            raise FedmxError(f"MLflowLogger: {str(error).splitlines()[0]}") from error
        self._run, sent, tags, found = run, 0, {}, []
        if run.folder is not None:
            tags = {_TAG: run.folder.facts["run"]}
            wanted = f"tags.`{_TAG}` = '{tags[_TAG]}'"
            found = self._client.search_runs([number], wanted, max_results=1)
        if found:
            self.run_id = found[0].info.run_id
            metrics = found[0].data.metrics
            histories = [self._client.get_metric_history(self.run_id, key) for key in metrics]
            sent = max((one.step for history in histories for one in history), default=0)
            self._client.update_run(self.run_id, status="RUNNING")
        else:
            name = self.run_name or name_of(run)
            made = self._client.create_run(number, run_name=name, tags=tags)
            self.run_id = made.info.run_id
            self._log_settings(settings_of(run))
        self._go_on(run, sent)

    def on_end(self, status: Ending, reason: str) -> None:
        if not self.run_id or self._run is None:
            return
        self._client.set_tag(self.run_id, "fedmx.reason", reason_of(self._run, reason))
        if self.files:
            for path in files_of(self._run):
                self._client.log_artifact(self.run_id, str(path))
        self._client.set_terminated(self.run_id, _STATUS[status])

    def _send(self, round: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now_ms = time.time_ns() // 1_000_000
        metrics = [Metric(key, value, now_ms, round) for key, value in numbers.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def _log_settings(self, settings: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        params = [Param(key, value[:_LONGEST]) for key, value in settings.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self.run_id, params=params[start : start + _MOST_PARAMS])


@dataclass
class WandbLogger(Tracker):
    """Logs a run to Weights & Biases; needs the extra ``wandb``.

    The W&B run has the id in run.json, so a resumed run continues it. Offline files hold all
    rounds, including those before a resume.

    Attributes:
        project: the project.
        name: the run's name; None: the name of the run folder.
        mode: ``online``, ``offline`` (``wandb sync`` sends it later) or ``disabled``; None:
            WANDB_MODE.
        folder: the folder of files until they are sent; None: WANDB_DIR.
        files: whether to send experiment, model and report.
        path: the folder of the run's files; known once it has started.
    """

    project: str = "fedmx"
    name: str | None = None
    mode: Literal["online", "offline", "disabled"] | None = None
    folder: str | Path | None = None
    files: bool = True
    path: Path | None = field(default=None, init=False)
    _wandb: Any = field(default=None, init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        """Start a run, or continue it.

        Raises:
            FedmxError: the package is not installed, or the run cannot start.
        """
        try:
            import wandb
        except ImportError:
            raise FedmxError(f"WandbLogger needs wandb; {install('wandb')}") from None
        try:
            self._wandb = wandb.init(
                project=self.project,
                name=self.name or name_of(run),
                id=None if run.folder is None else run.folder.facts["run"],
                resume=None if run.folder is None else "allow",
                mode=self.mode,
                dir=None if self.folder is None else str(self.folder),
                config=settings_of(run),
                reinit="create_new",  # the caller may have another active run
                # What the process prints names clients.
                settings=wandb.Settings(console="off") if run.confidential else None,
            )
        except (wandb.errors.Error, ValueError) as error:
            lines = str(error).splitlines()[:3]  # of a wrong setting: a title, its name, the reason
            raise FedmxError(f"WandbLogger: {': '.join(map(str.strip, lines))}") from error
        self.path = Path(self._wandb.dir).parent
        self._wandb.define_metric("*", step_metric="round")
        self._go_on(run, int(self._wandb.summary.get("round", 0)) if self._wandb.resumed else 0)

    def on_end(self, status: Ending, reason: str) -> None:
        if self._wandb is None or self._run is None:
            return
        self._wandb.summary.update({"status": status, "reason": reason_of(self._run, reason)})
        if self.files:
            for path in files_of(self._run):
                self._wandb.save(str(path), base_path=str(path.parent), policy="now")
        self._wandb.finish(exit_code=int(status == "failed"))

    def _send(self, round: int, numbers: Mapping[str, float]) -> None:
        self._wandb.log({"round": round, **numbers})
