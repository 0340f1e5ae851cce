"""The closed table of messages between a server and its clients."""

from __future__ import annotations

from dataclasses import dataclass

from layers.compute.data.targets import Targets
from layers.logic import Answer, Offer, Question, Task, Update, Verdict
from layers.network import MessageCodec

SMALL_BYTES = 4 << 20  # the most that a message without a model may take
SMALL_VALUES = 1 << 12  # the most values in it: each takes a microsecond to read
MOST_VALUES = 1 << 16  # in a message that can carry a model


@dataclass(frozen=True)
class AnnouncedAsset:
    """A file that every client must have before it is ready.

    Attributes:
        name: name of the asset, as a hook declares it.
        sha256: SHA-256 of the file, 64 hexadecimal digits.
        size_bytes: size of the file.
    """

    name: str
    sha256: str
    size_bytes: int

    def file_name(self, client: int) -> str:
        """Return the file name of a client's copy; clients on one machine may share a folder."""
        return f"{self.name}-{self.sha256[:16]}-client-{client}.safetensors"


@dataclass(frozen=True)
class Setup:
    """Down, first: describes the run; a client that cannot take part says so.

    Attributes:
        run: name of the run; a client keeps its memory by run.
        experiment: the experiment file's resolved text; empty where both ends were built in Python.
        digest: digest of everything in the experiment that determines the result.
        client: number of the client that receives this message, from 0.
        shape: shape of one example as the model takes it.
        targets: what the targets of samples are.
        assets: the files that the client must have before it is ready.
    """

    run: str
    experiment: str
    digest: str
    client: int
    shape: tuple[int, ...]
    targets: Targets
    assets: tuple[AnnouncedAsset, ...] = ()


@dataclass(frozen=True)
class Ready:
    """Up: the client is ready for tasks.

    Attributes:
        run: name of the run, from the setup.
        client: number of the client.
        samples: its number of training samples, n_k.
        kept: the rounds after which it still has its hooks' memory.
        assets: the SHA-256 of each announced asset, in the order of the setup; it has all of them.
    """

    run: str
    client: int
    samples: int
    kept: tuple[int, ...]
    assets: tuple[str, ...] = ()


@dataclass(frozen=True)
class MissingAssets:
    """Up: the client lacks assets before it is ready; the server sends it their files.

    Attributes:
        run: name of the run, from the setup.
        client: number of the client.
        assets: the names of the assets that it lacks.
    """

    run: str
    client: int
    assets: tuple[str, ...]


@dataclass(frozen=True)
class CannotTakePart:
    """Up: the client cannot take part in the experiment, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class Failed:
    """Up: the client's code failed; it sends no update in this round."""

    round: int
    client: int
    reason: str
    traceback: str


@dataclass(frozen=True)
class Finished:
    """Down, last: the run is over."""

    reason: str


_SMALL = (Setup, Ready, CannotTakePart, Failed, Finished, Offer, Verdict, MissingAssets)
# Questions and answers may carry models, as tasks and updates do.
_LARGE = (Question, Answer, Task, Update)

CODEC = MessageCodec(
    {
        1: Setup,
        2: Ready,
        3: CannotTakePart,
        4: Failed,
        5: Finished,
        6: Question,
        7: Answer,
        8: Task,
        9: Offer,
        10: Verdict,
        11: Update,
        12: MissingAssets,
    },
    max_bytes=dict.fromkeys(_SMALL, SMALL_BYTES),
    max_values=dict.fromkeys(_SMALL, SMALL_VALUES) | dict.fromkeys(_LARGE, MOST_VALUES),
)
"""The codec of these messages, for a `Listener` or a `Connector`."""
