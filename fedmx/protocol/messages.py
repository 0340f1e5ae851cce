"""The closed table of what travels between a server and its clients."""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic import Answer, Offer, Question, Task, Update, Verdict
from layers.network import MessageCodec


@dataclass(frozen=True)
class AnnouncedAsset:
    """A file that every client has to have before it is ready.

    Attributes:
        name: of the asset, as a hook declares it.
        sha256: of the file, 64 hexadecimal digits.
        size_bytes: of the file.
    """

    name: str
    sha256: str
    size_bytes: int

    def file_name(self, client: int) -> str:
        """Return the name of a client's copy: clients of one machine may have one folder."""
        return f"{self.name}-{self.sha256[:16]}-client-{client}.safetensors"


@dataclass(frozen=True)
class Setup:
    """Down, first: what the run is; the client refuses what it cannot do.

    Attributes:
        run: names this run, so that a client's memory is not taken for that of another one.
        experiment: the experiment file's resolved text; empty where both ends were built in Python.
        digest: of everything in the experiment that determines the result.
        client: number of the client that this goes to, from 0.
        shape: of one example as the model takes it.
        classes: number of labels.
        assets: the files that it must have before it is ready.
    """

    run: str
    experiment: str
    digest: str
    client: int
    shape: tuple[int, ...]
    classes: int
    assets: tuple[AnnouncedAsset, ...] = ()


@dataclass(frozen=True)
class Ready:
    """Up: the client can do it.

    Attributes:
        samples: its number of training samples, n_k.
        kept: the rounds after which it still has what its hooks kept.
        assets: the SHA-256 of each asset that was announced, in that order: it has them all.
    """

    run: str
    client: int
    samples: int
    kept: tuple[int, ...]
    assets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lacking:
    """Up: the client can do it once it has some more assets; the server sends it their files.

    Attributes:
        assets: the names of those that it lacks.
    """

    run: str
    client: int
    assets: tuple[str, ...]


@dataclass(frozen=True)
class CannotTakePart:
    """Up: the client lacks something that the experiment names."""

    client: int
    reason: str


@dataclass(frozen=True)
class Failed:
    """Up: the client's own code raised; no update of this round will come from it."""

    round: int
    client: int
    reason: str
    traceback: str


@dataclass(frozen=True)
class Finished:
    """Down, last: the run is over."""

    reason: str


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
        12: Lacking,
    }
)
