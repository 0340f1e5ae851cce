"""What is known of a server and of run folders that are made up, as the documents of a status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmx import Experiment, RunFolder
from fedmx.monitoring.monitor import ClientsNow, Monitor
from fedmx.monitoring.reading import status_of_run


def made_up() -> Monitor:
    """The monitor of a server in its round 23, which went on after round 20."""
    certificate = {"what": "certificate", "path": "a.pem", "warning": None}
    expires = {"expires": "2026-02-01T00:00:00+00:00"}
    now = ClientsNow(
        "fl.example.org:9100",
        number=5,
        ready=(0, 2, 4),
        away={1: 1769851800.0},
        waiting_for="updates",
        waited_for=(2, 4),
        since=1769851830.5,
        received_bytes=5000,
        sent_bytes=7000,
        refused_connections=6,
        reconnections=8,
        certificates=({**certificate, **expires}, {"what": "ca", **expires}),
        paused=True,
        excluded=(3,),
    )
    monitor = Monitor("a-hash", "digits", 30, lambda: now)
    monitor.started = 1769850000.0
    monitor.goes_on_after(20)
    monitor.begun(21)
    for round, seconds, accuracy in ((21, 2.0, 0.75), (22, 3.0, None)):
        monitor.concluded(concluded(round, seconds, accuracy), "")
        monitor.begun(round + 1)
    return monitor


def concluded(round: int, seconds: float, accuracy: float | None, **more: Any) -> dict[str, Any]:
    return {
        "round": round,
        "seconds": seconds,
        "participants": [4, 0],
        "updates": 3,
        "rejected": 1,
        "declined": 20,
        "lost": 300,
        "accuracy": accuracy,
        "loss": accuracy and 0.5,
        "epsilon": 0.25 * round,
        "suspended": {"3": 2.5},
        **more,
    }


def of_run(parent: Path, mode: str, live: object = None, **facts: Any) -> RunFolder:
    """A run with two rounds that are made up, and what its server has written last."""
    text = Experiment(rounds=9, clients=4, compute={"model": "2nn", "data": "digits"}).to_yaml()
    run = RunFolder.create(parent, "a", text, {"mode": mode, "started": "yesterday", **facts})
    for round, accuracy in ((1, 0.75), (2, None)):
        bytes_sent = {"up_bytes": 100 * round, "down_bytes": 3000 * round}
        run.append_round(concluded(round, 2.0, accuracy, **bytes_sent))
    if live is not None:
        run.live_path.write_text(live if isinstance(live, str) else json.dumps(live))
    return run


def monitored(parent: Path) -> str:
    """The status of a server at several times, and that of the runs in folders."""
    lines: list[str] = []

    def add(title: str, status: dict[str, Any]) -> None:
        here = {name: "..." for name in ("pid", "memory_bytes", "time") if status[name]}
        told = [f"  {name}: {json.dumps(value)}" for name, value in {**status, **here}.items()]
        lines.extend(["", f"{title}:", *told])

    nobody = Monitor("a-hash", "digits", 3, lambda: ClientsNow("here:1"))
    nobody.started = 1769850000.0
    add("before the first client", nobody.status())
    monitor = made_up()
    add("in round 23", monitor.status())
    more = {"in_flight": 4, "staleness": [0, 1, 5], "suspended": {}}
    monitor.concluded(concluded(23, 1.0, 0.8, loss=0.4, **more), "an operator ended it")
    add("after its end", monitor.status())

    run = of_run(parent / "simulation", "simulation", {"format": 1, "round": 7})
    add("an interrupted simulation", status_of_run(run.path))
    with run.lock():
        add("a simulation under way", status_of_run(run.path))
    live = {**made_up().status(), "started": "today"}
    run = of_run(parent / "server", "server", live, address="fl.example.org:9100")
    add("a server that was killed", status_of_run(run.path))
    run.finish("done", "all 9 rounds were run")
    add("a server that is done", status_of_run(run.path))
    with run.lock():
        add("a server a moment after its end", status_of_run(run.path))
    text = Experiment(rounds=9, clients=4, compute={"model": "2nn", "data": "digits"}).to_yaml()
    bare = RunFolder.create(parent, "bare", text, {"started": "yesterday"})
    add("a run without rounds", status_of_run(bare.path))
    return "\n".join(lines[1:])


MONITORED: tuple[Callable[[Path], str], ...] = (monitored,)
