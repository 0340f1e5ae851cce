"""A server's status as metrics of Prometheus, by its own client library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedmx.errors import FedmxError
from fedmx.monitoring.monitor import BUCKETS_S, Monitor

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def check_prometheus() -> None:
    """Check that the client library of Prometheus is there.

    Raises:
        FedmxError: it is not.
    """
    if find_spec("prometheus_client") is None:
        raise FedmxError(
            "network.metrics needs the package prometheus-client; "
            'pip install "fedmx[metrics]", or leave the key out'
        )


def metrics_page(monitor: Monitor) -> Callable[[str], tuple[str, bytes]]:
    """Return what makes the page of metrics, in the format that the reader accepts.

    Raises:
        FedmxError: the client library is not there.
    """
    check_prometheus()
    # Not at the top: only a server with this setting needs the library.
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(monitor))
    ProcessCollector(registry=registry)  # process_resident_memory_bytes, process_open_fds, ...

    def page(accept: str) -> tuple[str, bytes]:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)

    return page


class _Collector:
    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        from fedmx.version import __version__

        status, counts = self._monitor.status(), self._monitor.counts()
        info = {"version": __version__, "run": status["run"]}
        yield InfoMetricFamily("fedmx", "Which run this is, and of which fedmx.", info)
        round = status["round"] or status["rounds_done"]
        waiting = status["waiting"]
        for name, text, value in (
            ("round", "The round under way, or the last one that was concluded.", round),
            ("last_round", "The number of the last round of the run.", status["last_round"]),
            ("clients_ready", "Clients that are connected and ready.", len(status["ready"])),
            ("clients_away", "Clients that left and may come back.", len(status["away"])),
            (
                "clients_waited_for",
                "Clients that the server waits for now.",
                len(waiting["clients"]) if waiting else 0,
            ),
            ("accuracy_ratio", "Accuracy of the global model, from 0 to 1.", status["accuracy"]),
            ("loss", "Mean loss of the global model.", status["loss"]),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"fedmx_{name}", text, value)
        for name, text, value in (
            ("received_bytes", "Bytes from clients.", status["received_bytes"]),
            ("sent_bytes", "Bytes to clients.", status["sent_bytes"]),
            (
                "refused_connections",
                "Connections that were turned away, or ended for what they sent.",
                status["refused_connections"],
            ),
            ("reconnections", "Times that a client came back.", status["reconnections"]),
        ):
            yield CounterMetricFamily(f"fedmx_{name}", text, value)
        updates = CounterMetricFamily("fedmx_updates", "Updates by their fate.", labels=["fate"])
        for fate, number in counts.updates.items():
            updates.add_metric([fate], number)
        yield updates
        buckets = [(str(limit), n) for limit, n in zip(BUCKETS_S, counts.buckets, strict=True)]
        yield HistogramMetricFamily(
            "fedmx_round_duration_seconds",
            "Durations of the rounds, evaluation included.",
            buckets=[*buckets, ("+Inf", counts.rounds)],
            sum_value=counts.seconds,
        )
