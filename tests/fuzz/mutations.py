"""Deterministic mutations of a corpus, which the test suite runs instead of a fuzzer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, (1 << 63) - 1, (1 << 64) - 1)
WIDTHS = (1, 2, 4, 8)


def mutations(corpus: Sequence[bytes], number: int, seed: int) -> Iterator[bytes]:
    """Yield `number` inputs, each a sample of the corpus with one to four changes."""
    rng = random.Random(seed)
    for _ in range(number):
        data = bytearray(rng.choice(corpus))
        for _ in range(rng.randint(1, 4)):
            _change(data, corpus, rng)
        yield bytes(data)


def _change(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    match rng.randrange(7):
        case 0 if data:
            data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
        case 1:
            width = rng.choice(WIDTHS)
            edge = rng.choice(EDGES) & ((1 << 8 * width) - 1)
            data[place : place + width] = edge.to_bytes(width, rng.choice(("little", "big")))
        case 2:
            del data[place : place + rng.randint(1, 16)]
        case 3:
            data[place:place] = rng.randbytes(rng.randint(1, 16))
        case 4:
            data[place:place] = data[place : place + rng.randint(1, 64)]
        case 5:
            other = rng.choice(corpus)
            start = rng.randrange(len(other) + 1)
            data[place : place + rng.randint(0, 64)] = other[start : start + rng.randint(1, 64)]
        case _:
            del data[place:]
