"""The largest values in full precision, with error feedback (Aji and Heafield 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic.compression.codecs import Codec, SparseCodec, check_share
from layers.logic.compression.sides import CodecClientSide, CodecServerSide
from layers.logic.core.hook import ClientSide, Hook, ServerSide


@dataclass(frozen=True)
class TopK(Hook):
    """The share p of largest values of each tensor; the rest is fed back (Aji and Heafield 2017).

    Attributes:
        p: share of the values of an update that go up.
        p_down: share of the values of the model's change that go down; None sends the model dense.
        flat: whether the whole vector counts as one tensor.
    """

    p: float = 0.01
    p_down: float | None = None
    flat: bool = False

    def __post_init__(self) -> None:
        check_share("p", self.p)
        if self.p_down is not None:
            check_share("p_down", self.p_down)

    @property
    def encodes_update(self) -> bool:
        """Always true: updates go up encoded."""
        return True

    @property
    def encodes_model(self) -> bool:
        """Whether the model goes down encoded."""
        return self.p_down is not None

    @property
    def share_sent(self) -> float:
        """`p`."""
        return self.p

    def server(self) -> ServerSide:
        """Return the half that decodes updates and encodes the changes of the model."""
        return CodecServerSide(*self._codecs(), flat=self.flat)

    def client(self) -> ClientSide:
        """Return the half that encodes updates, and keeps the residual and the model."""
        return CodecClientSide(*self._codecs(), flat=self.flat)

    def _codecs(self) -> tuple[Codec, Codec | None]:
        return SparseCodec(self.p), None if self.p_down is None else SparseCodec(self.p_down)
