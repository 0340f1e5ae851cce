"""The values in the golden files, of every type that the formats can hold."""

from __future__ import annotations

import numpy as np

from fedmx.federation.messages import (
    Answered,
    JobEnded,
    JobOffer,
    JobReply,
    JobStart,
    JobStop,
    Order,
    Presence,
    Submit,
)
from fedmx.journal.journal import Entry, Journal, UpdateArrived
from fedmx.protocol.messages import (
    AnnouncedAsset,
    CannotTakePart,
    Failed,
    Finished,
    MissingAssets,
    Ready,
    Setup,
)
from fedmx.server.evaluation import Evaluation
from fedmx.server.round import Round
from layers.compute.data.targets import Targets
from layers.logic import (
    Answer,
    ClientLedger,
    ClientLost,
    ClientState,
    Offer,
    Question,
    RoundReport,
    ServerState,
    Task,
    Times,
    Traffic,
    Training,
    Update,
    Verdict,
)
from layers.logic.core.report import ClientReport, Overhead
from layers.logic.round.exchange import Costs
from layers.network.control import (
    FileAccept,
    FileOffer,
    FileReason,
    FileStart,
    Goodbye,
    Greeting,
    Hello,
    Refusal,
    Welcome,
)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


TRAINING = Training(
    epochs=2,
    steps=7,
    batch_size=32,
    learning_rate=0.05,
    momentum=0.9,
    weight_decay=0.001,
    loss="received",
)
SLOT = {
    "none": None,
    "truth": True,
    "whole": -(2**63),
    "share": 0.1,
    "text": "grün",
    "bytes": b"\x00\xff",
    "array": np.array([[1, -2], [3, 4]], np.int16),
    "empty": np.zeros((0, 3), np.float64),
}
TASK = Task(
    round=3,
    client=5,
    seed=2**63 - 1,
    training=TRAINING,
    weights=floats(0.5, -1.25, 3.0e-38),
    buffers=floats(1.0),
    last_accepted_round=2,
    offer=True,
    model_version=1,
    slots={"stc": SLOT},
)
SHA256 = bytes(range(32))

MESSAGES = {
    "setup": Setup(
        "digits-20260131-093000",
        "name: digits\n",
        "ab" * 32,
        4,
        (1, 28, 28),
        Targets("classes", 10),
        (AnnouncedAsset("shared", "cd" * 32, 12345),),
    ),
    "ready": Ready("digits-20260131-093000", 4, 600, (2, 3), ("cd" * 32,)),
    "cannot-take-part": CannotTakePart(4, "no module own_hook"),
    "failed": Failed(3, 4, "ValueError: no", "Traceback\n  ...\n"),
    "finished": Finished("all 10 rounds were run"),
    "question": Question(
        "step",
        classes=10,
        learning_rate=0.01,
        samples=7,
        values=100,
        round=1,
        seed=99,
        training=TRAINING,
        model_bytes=16,
        weights=floats(0.5, -1.25, 2.0),
        buffers=floats(1.0),
        slots={"rebalance": {"above": 3.0}},
    ),
    "answer": Answer(4, "labels", {"histogram": np.arange(10)}, 1, {"hook": {"x": 1}}),
    "task": TASK,
    "offer": Offer(3, 5, 600, 1.5, 0.25, {"loss": 2.3}, 7.0),
    "verdict": Verdict(3, 5, True, 6.5),
    "update": Update(
        3,
        5,
        600,
        120,
        floats(0.5, -1.25, 3.0e-38),
        floats(0.5),
        {"loss": 2.25, "norm": 1.5},
        {"stc": SLOT},
    ),
    "missing-assets": MissingAssets("digits-20260131-093000", 4, ("shared",)),
}
FEDERATION = {
    "presence": Presence("0.1.0", (), ("clinic",), 1),
    "job-offer": JobOffer("000001", "name: digits\n", "ab" * 32, "anna", SHA256),
    "job-reply": JobReply("000001", "accepted", ""),
    "job-start": JobStart("000001", 0),
    "job-stop": JobStop("000001"),
    "job-ended": JobEnded("000001", 2, "no module own_hook"),
    "submit": Submit("name: digits\n", ("bonn", "ulm"), SHA256),
    "order": Order("log", "000001", 4096),
    "answered": Answered("", '{"job": "000001"}'),
}

CONTROL_WORDS = {
    "greeting": Greeting(1, 1, SHA256, True),
    "hello-of-a-site": Hello(1, "bonn", ["continue"], SHA256, 1 << 30, 8, b""),
    "hello": Hello(1, "client-7", ["files"], SHA256, 1 << 30, 8, SHA256[::-1]),
    "welcome": Welcome(["files"], 5.0, 20.0, 1 << 30, 8, SHA256),
    "refusal": Refusal("authentication-failed", "the token is another", True),
    "goodbye": Goodbye("all 10 rounds were run", False),
    "file-offer": FileOffer("shared.safetensors", 12345, SHA256),
    "file-accept": FileAccept(4096, SHA256),
    "file-start": FileStart(4096),
    "file-reason": FileReason("no room on the disk"),
}

STATE = ServerState(
    round=2,
    weights=floats(0.5, -1.25, 3.0e-38),
    buffers=floats(1.0, 0.0),
    memory={
        "selector": {"clients": np.array([0, 4, 7]), "cut": 0.25, "mood": "calm"},
        "survey": {"labels": {4: {"histogram": np.arange(3)}, 0: {"histogram": np.ones(3, int)}}},
        "aggregator": {"history": {7: {"round": 2, "signs": np.array([1, 254], np.uint8)}}},
    },
    last_accepted={4: 2, 0: 1},
    in_flight={7: TASK.without_vectors()},
)
CHECKPOINT = {
    "server": STATE.tree(),
    "clients": {
        "ledgers": {0: {"memory": {"residual": floats(1.0, -0.5)}}},
        "limits": [float("inf"), float("-inf"), 2**70, -(2**63)],
        "pair": (1, None),
        "packed": b"\x00\x01\xff",
        "half": np.array([0.5, 1.5], np.float16),
        "one": np.float64(0.1),
        "flags": np.array([True, False]),
        "count": np.array(7, np.uint64),
    },
    "elapsed_s": 12.5,
    "clock_s": 3600.0,
    "reason": "",
}
LEDGER = ClientLedger(
    ClientState(2, {"stc": {"residual": floats(0.25, -0.5)}}),
    ClientState(3, {"stc": {"residual": floats(0.125, 0.0)}, "dgc": {"rounds": 3}}),
)
FACTS = {
    "run": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "started": "2026-01-31T09:30:00+01:00",
    "seed": 7,
    "mode": "simulation",
}
JOURNAL = Journal(
    3,
    {0: 500, 4: 600, 5: 600, 7: 10},
    excluded={9: "suspected in round 2"},
    entries=[
        Entry((["begin"], ["tasks", [0, 0], [4, 2]]), Offer(3, 0, 500, 1.5, 0.25), 2.5),
        Entry((["verdicts", [0, False]],), UpdateArrived(3, 5, "a0" * 32), 4.25),
        Entry((), UpdateArrived(3, 4, "b1" * 32, "ValueError: no"), 4.25),
        Entry((), ClientLost(3, 7, "no answer before the round ended"), 4.25),
        Entry((["close"], ["account"]), Costs(4.25, traffic={5: Traffic(1000, 400)}), 4.25),
    ],
    updates={(5, 3): {1: "a0" * 32}},
)
ROUND = Round(
    RoundReport(
        round=3,
        learning_rate=0.05,
        selected=4,
        clients=(
            ClientReport(
                5,
                "accepted",
                samples=600,
                steps=120,
                metrics={"loss": 2.25, "norm": 1.5},
                traffic=Traffic(1000, 400),
                times=Times(0.0, 2.5, 3.0, 3.0, 4.25),
                task_round=3,
                tasks=1,
            ),
            ClientReport(0, "declined", "its offer was declined", samples=500),
            ClientReport(7, "lost", "no answer before the round ended"),
            ClientReport(4, "rejected", "ValueError: no", "Traceback\n", metrics={"loss": 1e400}),
        ),
        traffic=Traffic(2000, 400),
        took_s=4.25,
        overhead=Overhead(640, 12400, ("127.0.0.1: the token is another",)),
        numbers={"epsilon": 1.5},
    ),
    Evaluation(
        {"accuracy": 0.75, "loss": 0.5},
        ({"client": 0, "samples": 9, "model": "global", "accuracy": 0.7},),
    ),
    seconds=1.25,
    elapsed_s=12.5,
    clock_elapsed_s=3600.0,
    virtual=True,
    model_sha256="0f" * 32,
    journal=JOURNAL,
)
