"""Tells MLflow of a run: its settings, the numbers of each round, and at the end its files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmx.callbacks.tracked import files_of, name_of, settings_of
from fedmx.callbacks.tracker import Tracker
from fedmx.errors import FedmxError
from fedmx.run.ending import Ending
from fedmx.server.callback import Running

_TAG = "fedmx.run"  # which run folder a run of MLflow is of
_MOST_PARAMS = 100  # that MLflow takes in one call
_LONGEST = 500  # characters of a value that every version of MLflow takes
_STATUS = {"done": "FINISHED", "stopped": "KILLED", "interrupted": "KILLED", "failed": "FAILED"}


@dataclass
class MLflowLogger(Tracker):
    """Logs a run to MLflow; ``pip install fedmx[mlflow]``.

    A resumed run goes on in the same run of MLflow, which it finds by the name of the run folder;
    rounds that MLflow has already are not logged again.

    Attributes:
        experiment: the experiment in MLflow; it is made if it does not exist.
        tracking_uri: where MLflow is; None: what MLFLOW_TRACKING_URI says.
        run_name: None: the name of the run folder.
        files: whether experiment, model and report are kept as artifacts.
        run_id: the id of the run in MLflow.
    """

    experiment: str = "fedmx"
    tracking_uri: str | None = None
    run_name: str | None = None
    files: bool = True
    run_id: str = field(default="", init=False)
    _client: Any = field(default=None, init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        """Begin a run of MLflow, or find the one to go on with.

        Raises:
            FedmxError: MLflow is not installed, or cannot be reached.
        """
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError:
            raise FedmxError("MLflowLogger needs MLflow; pip install fedmx[mlflow]") from None
        try:
            self._client = MlflowClient(tracking_uri=self.tracking_uri)
            known = self._client.get_experiment_by_name(self.experiment)
            number = known and known.experiment_id
            number = number or self._client.create_experiment(self.experiment)
        except MlflowException as error:
            raise FedmxError(f"MLflowLogger: {str(error).splitlines()[0]}") from error
        self._run, sent, name, found = run, 0, name_of(run), []
        if run.folder is not None:
            found = self._client.search_runs([number], f"tags.`{_TAG}` = '{name}'", max_results=1)
        if found:
            self.run_id = found[0].info.run_id
            history = self._client.get_metric_history(self.run_id, "up_bytes")
            sent = max((one.step for one in history), default=0)
            self._client.update_run(self.run_id, status="RUNNING")
        else:
            made = self._client.create_run(
                number, run_name=self.run_name or name, tags={_TAG: name}
            )
            self.run_id = made.info.run_id
            self._log_settings(settings_of(run))
        self._go_on(run, sent)

    def on_end(self, status: Ending, reason: str) -> None:
        """Keep the files, and end the run of MLflow."""
        if not self.run_id or self._run is None:
            return
        self._client.set_tag(self.run_id, "fedmx.reason", reason)
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
