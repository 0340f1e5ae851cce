"""Why a run ends: after its last round, or before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmx.quantities import Quantity, metrics_in
from fedmx.report.formats import finite
from fedmx.server.round import Round


@dataclass(frozen=True)
class Stop:
    """When a run ends before its last round; the first condition that holds ends it.

    Attributes:
        accuracy: least accuracy of the global model, from 0 to 1.
        loss: greatest loss of the global model.
        seconds: duration of the run.
        client_accuracy: least mean over clients of the accuracy on a client's own test samples.
        clock_s: duration in seconds by the clients' clock, which may be virtual.
        metric: the value of each metric of the global model to reach, by its name in the file.
        patience: rounds without a new best value of the first metric.
        metrics: those of the global model; the first one stands for it.
    """

    accuracy: float | None = None
    loss: float | None = None
    seconds: float | None = None
    client_accuracy: float | None = None
    clock_s: float | None = None
    metric: Mapping[str, float] | None = None
    patience: int | None = None
    metrics: Sequence[Quantity] = field(default=metrics_in({}), repr=False)

    @property
    def reads_results(self) -> bool:
        """Whether the results of evaluations may end the run."""
        others = {"seconds", "clock_s", "metrics"}
        return any(value for name, value in vars(self).items() if name not in others)

    def reason(self, round: Round, before: Sequence[Mapping[str, Any]] = ()) -> str | None:
        """Return why the run ends after `round`, or None.

        Args:
            round: the last round.
            before: the records of the rounds before it.
        """
        values = round.evaluation.values
        for one in self.metrics:
            target = (self.metric or {}).get(one.name)
            if target is not None and one.meets(value := values.get(one.key), target):
                return f"{one.words} {value:.4f} reached {target}"
        if self.accuracy is not None and (round.accuracy or 0.0) >= self.accuracy:
            return f"accuracy {round.accuracy:.4f} reached {self.accuracy}"
        mean = round.client_accuracy_mean
        if self.client_accuracy is not None and (mean or 0.0) >= self.client_accuracy:
            return f"mean accuracy over clients {mean:.4f} reached {self.client_accuracy}"
        if self.loss is not None and round.loss is not None and round.loss <= self.loss:
            return f"loss {round.loss:.4f} reached {self.loss}"
        if self.seconds is not None and round.elapsed_s >= self.seconds:
            return f"{round.elapsed_s:.0f} s passed the limit of {self.seconds:g} s"
        if self.clock_s is not None and round.clock_elapsed_s >= self.clock_s:
            return f"{round.clock_elapsed_s:.0f} s passed the clock's limit of {self.clock_s:g} s"
        main, seen = self.metrics[0], (*before, {"round": round.round, **values})
        known = {one["round"]: y for one in seen if (y := finite(one.get(main.key))) is not None}
        if self.patience is not None and values and known:
            best = main.best(known.values())
            at = next(number for number, value in known.items() if value == best)
            since = round.round - at
            if since >= self.patience:
                return (
                    f"{main.words} is no better than {best:.4f} of round {at} since {since} rounds"
                )
        return None


def after_last(rounds: int) -> str:
    """Return why a run ends after all its `rounds`."""
    return "the one round was run" if rounds == 1 else f"all {rounds} rounds were run"
