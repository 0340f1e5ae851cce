"""A client's end of one sum: it publishes keys, shares its secrets, masks, and helps to open.

Source: Bonawitz et al. 2017, figure 4, on the graph of Bell et al. 2020. The secrets are in the
memory of this process alone. Each step is taken once: a server that asks for it again with other
values is refused, since two answers could tell what one does not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import numpy as np

from layers.logic.core.hook import Identity
from layers.logic.secrets import Secret
from layers.logic.secure_sum.graph import LEAST_CLIENTS, Trust
from layers.logic.secure_sum.keys import (
    KEY_BYTES,
    START,
    TAG_BYTES,
    agreed,
    derived,
    is_signed,
    mask,
    pair_key,
    public_of,
    sealed,
    signed,
    unsealed,
    verifying_key,
)
from layers.logic.secure_sum.roster import (
    MASKING,
    SEALING,
    SIGNING,
    Roster,
    SumRefused,
    commitment_to,
    list_of_survivors,
    published,
)
from layers.logic.secure_sum.shamir import PRIME, SHARE_BYTES, shares

T = TypeVar("T")
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""Of what one client seals for another: a share of each secret, and the tag."""


class Peer:
    """One client in one sum.

    Args:
        client: number of the client.
        round: number of the round.
        server: what the server may do.
        identity: signs the keys, and verifies those of others; None: nobody has certificates.
        min_clients: the fewest clients of a sum that it takes part in.
        secret_bytes: returns random bytes.

    Attributes:
        round: as given.
        noise: the secret of this client's noise in this sum, drawn at its first use.
        public: what this client publishes, see `Roster.public`.
        proof: that it is this client's; empty without an identity.
    """

    def __init__(
        self,
        client: int,
        round: int,
        server: Trust,
        identity: Identity | None = None,
        min_clients: int = LEAST_CLIENTS,
        secret_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.round, self._client, self._server = round, client, server
        self._identity, self._min_clients = identity, min_clients
        self._secret_bytes = secret_bytes
        self.noise = Secret(lambda: secret_bytes(KEY_BYTES))
        self._masking, self._sealing, self._signing, self._seed = (
            secret_bytes(KEY_BYTES) for _ in range(4)
        )
        self.public = b"".join(
            [
                public_of(self._masking),
                public_of(self._sealing),
                verifying_key(self._signing),
                commitment_to(self._seed),
            ]
        )
        self.proof = b""
        if identity is not None:
            self.proof = identity.sign(published(round, client, self.public))
        self._taken: dict[str, tuple[object, Any]] = {}  # the steps, each with values and result
        self._keys: dict[int, tuple[bytes, bytes]] = {}  # of boxes and masks, by neighbour
        self._known: dict[int, tuple[bytes, bytes]] = {}  # shares of both secrets, by neighbour

    def share(self, roster: Roster) -> tuple[bytes, list[int]]:
        """Return a sealed share of both secrets for each neighbour, and those that get none.

        Returns:
            `SEALED_BYTES` for each neighbour, ascending, zero for one that gets none; and the
            neighbours whose keys are not signed as they must be, or no keys.

        Raises:
            SumRefused: the roster is not for this client, or too few neighbours are who they say.
        """
        return self._once("shares", roster.digest, lambda: self._share(roster))

    def _share(self, roster: Roster) -> tuple[bytes, list[int]]:
        if roster.public.get(self._client) != self.public or roster.round != self.round:
            raise SumRefused(f"the server lists other keys than those of client {self._client}")
        self._check_clients(len(roster.clients))
        self._roster = roster
        around = roster.neighbours[self._client]
        self._keys = self._keys_with(around)
        refused = [one for one in around if one not in self._keys]
        self._check_number(len(around) - len(refused), "have signed their keys")
        places = [roster.places[one] for one in around]
        parts = [self._parts(secret, places) for secret in (self._masking, self._seed)]
        boxes = [
            bytes(SEALED_BYTES)
            if other in refused
            else sealed(
                self._keys[other][0], nonce(self._client), b"".join(both), self._label(other)
            )
            for other, *both in zip(around, *parts, strict=True)
        ]
        return b"".join(boxes), refused

    def _keys_with(self, around: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        """Return the keys of boxes and masks with each neighbour, of those whose own are right.

        They must have signed their keys with their certificates, and the keys must be some.
        """
        found = {}
        for client in around:
            content = published(self.round, client, self._roster.public[client])
            with suppress(ValueError):
                if self._identity is not None and self._server == "malicious":
                    self._identity.verify(client, self._roster.proofs[client], content)
                sealing = agreed(self._sealing, self._roster.key(client, SEALING))
                masking = pair_key(self._masking, self._roster.key(client, MASKING))
                found[client] = derived(sealing, b"fedmx shares"), masking
        return found

    def _parts(self, secret: bytes, places: Sequence[int]) -> list[bytes]:
        """Return the share of a secret at each place, with coefficients that nobody can know."""
        size = SHARE_BYTES + 15  # so that the remainder is uniform but for 2^-120
        coefficients = [
            int.from_bytes(self._secret_bytes(size), "little") % PRIME
            for _ in range(self._roster.degree.threshold - 1)
        ]
        made = shares(int.from_bytes(secret, "little"), coefficients, places)
        return [one.to_bytes(SHARE_BYTES, "little") for one in made]

    def _label(self, receiver: int) -> bytes:
        """Return what both ends must agree on: whom it is for, and the same roster."""
        return self._roster.digest + receiver.to_bytes(8, "big")

    def receive(self, boxes: Mapping[int, bytes]) -> list[int]:
        """Take what neighbours have sealed for this client; return those that it cannot read.

        Raises:
            SumRefused: too few can be read, so that the others could not open this client's masks.
        """
        content = tuple(sorted(boxes.items()))
        return self._once("boxes", content, lambda: self._receive(boxes))

    def _receive(self, boxes: Mapping[int, bytes]) -> list[int]:
        known, unreadable = {}, []
        for other, box in sorted(boxes.items()):
            if other not in self._keys:
                raise SumRefused(f"shares of client {other}, which is not a neighbour")
            both = unsealed(self._keys[other][0], nonce(other), box, self._label(self._client))
            if both is None:
                unreadable.append(other)
                continue
            known[other] = both[:SHARE_BYTES], both[SHARE_BYTES:]
        self._check_number(len(known), "have sent shares that can be read")
        self._known = known
        return unreadable

    def masked(self, words: np.ndarray, task: bytes = START) -> np.ndarray:
        """Return the words, uint32 (m,), plus all masks of this client, modulo 2^32.

        Args:
            words: the words.
            task: 16 bytes of a digest of what they were computed from. The masks of two clients
                with other tasks do not cancel: a server that gave others a task without effect
                would read the words of one client in the sum.

        Raises:
            SumRefused: other words were masked already.
        """
        self._once("words", hashlib.sha256(task + words.tobytes()).digest(), lambda: None)
        total: np.ndarray = words + mask(self._seed, words.size)
        for other in self._known:
            add_pair_mask(total, self._keys[other][1], self._client, other, task)
        return total

    def confirm(self, survivors: Sequence[int]) -> bytes:
        """Return the signature of the list of those whose words have arrived.

        Raises:
            SumRefused: the list cannot be right, or another one was signed already.
        """
        return self._once("survivors", tuple(survivors), lambda: self._confirm(survivors))

    def _confirm(self, survivors: Sequence[int]) -> bytes:
        self._check(survivors)
        return signed(self._signing, list_of_survivors(self._roster, survivors))

    def open(self, survivors: Sequence[int], signatures: Mapping[int, bytes]) -> bytes:
        """Return a share of each neighbour, of either secret and never of both.

        Args:
            survivors: those whose words are in the sum: the seeds of their own masks are opened,
                and the keys of all others.
            signatures: those of the list, by client; an honest server needs none.

        Returns:
            `SHARE_BYTES` for each neighbour, ascending, zero where it has no share.

        Raises:
            SumRefused: too few neighbours were told the same list, or another one was opened.
        """
        return self._once("opened", tuple(survivors), lambda: self._open(survivors, signatures))

    def _open(self, survivors: Sequence[int], signatures: Mapping[int, bytes]) -> bytes:
        self._check(survivors)
        if self._server == "malicious":
            self._once("survivors", tuple(survivors), lambda: b"")
            self._check_signed(survivors, signatures)
        there, none = set(survivors), (bytes(SHARE_BYTES), bytes(SHARE_BYTES))
        around = self._roster.neighbours[self._client]
        return b"".join(self._known.get(one, none)[one in there] for one in around)

    def _check(self, survivors: Sequence[int]) -> None:
        there = set(survivors)
        if self._client not in there or list(survivors) != sorted(there):
            raise SumRefused(f"a list of survivors without client {self._client}, or not in order")
        if not there <= self._roster.places.keys():
            raise SumRefused("a list of survivors with clients that are not in the roster")
        known = len(there & self._known.keys())
        if self._roster.is_complete:  # only the words of these can be in the sum
            self._check_clients(known + 1)
        self._check_clients(len(there))
        self._check_number(known, "are said to be left")

    def _check_clients(self, number: int) -> None:
        if number < self._min_clients:
            raise SumRefused(f"a sum of {number} clients, and {self._min_clients} are needed")

    def _check_number(self, neighbours: int, what: str) -> None:
        if neighbours < (needed := self._roster.degree.threshold):
            raise SumRefused(f"{neighbours} neighbours {what}, and {needed} are needed")

    def _check_signed(self, survivors: Sequence[int], signatures: Mapping[int, bytes]) -> None:
        content, valid = list_of_survivors(self._roster, survivors), 0
        for other in self._known:
            key = self._roster.key(other, SIGNING)
            valid += is_signed(key, signatures.get(other, b""), content)
        self._check_number(valid, "have signed the same list of survivors")

    def _once(self, step: str, given: object, take: Callable[[], T]) -> T:
        """Take a step, or return what it has returned, if it is taken with the same values again.

        Raises:
            SumRefused: it was taken with other values.
        """
        if step not in self._taken:
            self._taken[step] = given, take()
        known, result = self._taken[step]
        if known != given:
            raise SumRefused(f"the server asks for the {step} of one sum twice, with other values")
        return cast(T, result)


def nonce(sender: int) -> bytes:
    """Return the nonce of what a client seals: the key is of one pair, which seals twice."""
    return sender.to_bytes(12, "big")


def add_pair_mask(
    total: np.ndarray, key: bytes, client: int, other: int, task: bytes = START
) -> None:
    """Add the mask that a client has in common with another one, as the client counts it.

    Args:
        total: uint32 (m,), changed in place.
        key: their key.
        client: the client.
        other: the other one.
        task: as in `Peer.masked`.
    """
    words = mask(key, total.size, start=task)
    if client < other:
        total += words
    else:
        total -= words
