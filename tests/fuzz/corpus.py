"""The corpus: for each target, valid samples, and inputs that once failed.

    python -m tests.fuzz.corpus

rewrites the valid samples (`valid-*`), as is necessary after an intended change of a format. Inputs
found by a fuzzer (`found-*`) stay unchanged.
"""

from __future__ import annotations

from pathlib import Path

from fedmx.history.pack import Data, Manifest, packed
from fedmx.protocol.messages import CODEC
from fedmx.run.checkpoint import write_checkpoint
from fedmx.run.durable import write_document
from fedmx.run.records import JsonLines
from layers.network.control import CONTROL, Goodbye, Greeting, Hello, Welcome
from layers.network.frames import SIZE, Kind, frame
from tests.fedmx.golden.values import CHECKPOINT, CONTROL_WORDS, FACTS, MESSAGES, ROUND, SHA256
from tests.fuzz.targets import codecs, sessions

FOLDER = Path(__file__).parent / "corpus"
VALID, FOUND = "valid-", "found-"


def inputs(name: str) -> dict[str, bytes]:
    """Return the inputs of a target's corpus by file name."""
    return {path.name: path.read_bytes() for path in sorted((FOLDER / name).iterdir())}


def write_valid(folder: Path) -> None:
    """Write the valid samples of all targets."""
    samples = {
        "frames": _frames(),
        "messages": {name: bytes(CODEC.encode(words)) for name, words in MESSAGES.items()},
        "control": {name: bytes(CONTROL.encode(words)) for name, words in CONTROL_WORDS.items()},
        "server-session": _conversations(_client_says()),
        "client-session": _conversations(_server_says()),
    }
    samples["pack"] = {"small": _pack({}), "own": _pack({"modules/mine.py": b"class Mine: ...\n"})}
    for name, codec in codecs.CODECS.items():
        samples[name] = {
            f"layout-{layout}": codecs.sample(codec, layout)
            for layout, parts in enumerate(codecs.LAYOUTS)
            if parts[-1] <= 1000
        }
    for name, files in samples.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, data in files.items():
            (folder / name / f"{VALID}{file}").write_bytes(data)
    (folder / "checkpoint").mkdir(exist_ok=True)
    write_checkpoint(folder / "checkpoint" / f"{VALID}run", 2, CHECKPOINT)
    write_checkpoint(folder / "checkpoint" / f"{VALID}empty", 0, {})
    (folder / "records").mkdir(exist_ok=True)
    for name, records in (("rounds", [ROUND.record()]), ("clients", ROUND.client_records())):
        path = folder / "records" / f"{VALID}{name}"
        path.unlink(missing_ok=True)
        JsonLines(path).append(records)
    (folder / "document").mkdir(exist_ok=True)
    write_document(folder / "document" / f"{VALID}run", {"format": 2, "facts": FACTS})


def _frames() -> dict[str, bytes]:
    everything = b"".join(frame(kind, 7, b"word") for kind in Kind)
    return {f"pieces-{how}": bytes([how]) + everything for how in range(3)}


def _pack(more: dict[str, bytes]) -> bytes:
    data = Data(name="d", sha256=SHA256.hex(), partition_sha256=None, sizes=(3, 4), test=2)
    manifest = Manifest(
        run="small", members={}, data=data, weights=("w",), buffers=(), packages={"p": "p 1.0"}
    )
    names = ("run.json", "experiment.yaml", "status.json", "rounds.jsonl", "clients.jsonl")
    return packed(manifest, {**{name: name.encode() for name in names}, **more})


def _word(kind: Kind, stream: int, words: object) -> bytes:
    return frame(kind, stream, bytes(CONTROL.encode(words)))


def _message(stream: int, name: str) -> bytes:
    payload = bytes(CODEC.encode(MESSAGES[name]))
    return frame(Kind.MESSAGE, stream, SIZE.pack(len(payload))) + frame(Kind.DATA, stream, payload)


def _client_says() -> dict[str, bytes]:
    hello = Hello(1, "client-7", sorted(sessions.FEATURES), SHA256, 1 << 30, 8, b"")
    return _afterwards(_word(Kind.HELLO, 0, hello), ("ready", "update", "offer", "failed"))


def _server_says() -> dict[str, bytes]:
    greeting = _word(Kind.GREETING, 0, Greeting(1, 1, SHA256, False))
    welcome = _word(Kind.WELCOME, 0, Welcome(sorted(sessions.FEATURES), 5.0, 20.0, 1 << 30, 8, b""))
    return _afterwards(greeting + welcome, ("setup", "task", "verdict", "finished"))


def _afterwards(opening: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return possible inputs after the opening of a session."""
    goodbye = _word(Kind.GOODBYE, 0, Goodbye("that is all", False))
    messages = b"".join(_message(number + 1, name) for number, name in enumerate(names))
    one, two = (bytes(CODEC.encode(MESSAGES[name])) for name in names[:2])
    interleaved = b"".join(
        (
            frame(Kind.MESSAGE, 1, SIZE.pack(len(one))),
            frame(Kind.MESSAGE, 2, SIZE.pack(len(two))),
            frame(Kind.DATA, 2, two),
            frame(Kind.PING),
            frame(Kind.DATA, 1, one),
        )
    )
    sending = b"".join(
        (
            _word(Kind.FILE_OFFER, 9, CONTROL_WORDS["file-offer"]),
            _word(Kind.FILE_START, 9, CONTROL_WORDS["file-start"]),
            frame(Kind.FILE_DATA, 9, bytes(100)),
            _word(Kind.FILE_CANCELLED, 9, CONTROL_WORDS["file-reason"]),
        )
    )
    receiving = b"".join(
        (
            _word(Kind.FILE_ACCEPT, 1, CONTROL_WORDS["file-accept"]),
            frame(Kind.FILE_DONE, 1),
            _word(Kind.FILE_REFUSED, 1, CONTROL_WORDS["file-reason"]),
        )
    )
    broken = sessions.broken_off()
    rest = bytes(broken.buffer[broken.filled :])
    continued = frame(Kind.CONTINUE, 1, broken.words) + frame(Kind.DATA, 1, rest)
    return {
        "continued": opening + frame(Kind.PARTIAL, 0, broken.words) + continued + goodbye,
        "messages": opening + messages + goodbye,
        "interleaved": opening + interleaved + goodbye,
        "files": opening + sending + receiving + goodbye,
        "heartbeat": opening + frame(Kind.PING) * 3 + frame(Kind.PONG) + goodbye,
        "lost": opening + messages[: len(messages) // 2],
        "nothing": b"",
    }


def _conversations(said: dict[str, bytes]) -> dict[str, bytes]:
    """Return inputs: each conversation, and the longest also in pieces and read in place."""
    found = {name: b"\x00" + stream for name, stream in said.items()}
    found["pieces"] = b"\x02" + said["messages"]
    found["continued"] = b"\x03" + said["continued"]  # after the answer, not with the welcome
    found["in-place"] = bytes([sessions.IN_PLACE | 4]) + said["messages"]
    return found


if __name__ == "__main__":
    write_valid(FOLDER)
