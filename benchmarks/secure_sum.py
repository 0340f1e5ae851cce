"""What a secure sum costs: processor time at both ends, bytes, and a round over mutual TLS.

    python benchmarks/secure_sum.py [--values 1048576] [--clients 100 1000] [--over-tls 100]

First one client with 30 and with 100 neighbours: milliseconds of the processor in each step. Then
the server with each number of clients, after a tenth of them is lost: seconds to recover the
secrets, and to take the masks away. Then the bytes of one client, up and down, by the formula,
and as a share of values of 16 bits. At last rounds of many clients in threads over mutual TLS, with
masks and without, and the resident memory of the process, which has the server and all clients.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fedmx import Experiment, join, serve
from fedmx.deployment.names import identity
from fedmx.monitoring.monitor import resident_bytes
from layers.logic.secure_sum.graph import Degree, degree_for
from layers.logic.secure_sum.keys import SIGNATURE_BYTES
from layers.logic.secure_sum.opening import Opening
from layers.logic.secure_sum.peer import SEALED_BYTES, Peer
from layers.logic.secure_sum.roster import PUBLIC_BYTES, Roster
from layers.logic.secure_sum.shamir import SHARE_BYTES
from layers.logic.secure_sum.whole_numbers import packed, packed_bytes, quantised, word_bits
from layers.network import ClientTLS, make_ca, make_client_certificate, make_server_certificate

LOST = 0.1


def main(values: int, numbers: Sequence[int], over_tls: int, rounds: int) -> None:
    for neighbours in (30, 100):
        print(f"a client with {neighbours} neighbours, {values:,} values, milliseconds:")
        print(
            "  " + "  ".join(f"{step} {ms:.1f}" for step, ms in client(neighbours, values).items())
        )
    for number in numbers:
        recovered_s, opened_s, lost = server(number, values)
        print(
            f"the server with {number:,} clients, {lost} lost: secrets {recovered_s:.2f} s, "
            f"masks {opened_s:.2f} s"
        )
    for number, degree in ((1024, Degree(1023, 0)), (1000, degree_for(1000, "honest"))):
        up, down = bytes_of(number, degree.neighbours, values)
        print(
            f"{number:,} clients, {degree.neighbours} neighbours: {up:,} bytes up, {down:,} down "
            f"besides the model; {up / (2 * values):.3f} of 16-bit values"
        )
    if over_tls:
        for privacy in (None, {"name": "secure-sum"}):
            deployed(over_tls, rounds, privacy)


@contextlib.contextmanager
def spent(found: dict[str, float], step: str) -> Iterator[None]:
    """Note the milliseconds of the processor that a step takes."""
    began = time.process_time()
    yield
    found[step] = 1000 * (time.process_time() - began)


class Shared:
    """Clients that have shared their secrets, and the milliseconds of client 0 in each step.

    Args:
        number: of clients.
        degree: of their graph; None: that of a round.
    """

    def __init__(self, number: int, degree: Degree | None = None) -> None:
        self.ms: dict[str, float] = {}
        with spent(self.ms, "keys"):
            first = Peer(0, 1, "malicious")
        others = {client: Peer(client, 1, "malicious") for client in range(1, number)}
        self.peers = {0: first, **others}
        keys = {client: peer.public for client, peer in self.peers.items()}
        self.roster = Roster(1, "malicious", keys, dict.fromkeys(keys, b""))
        if degree is not None:
            vars(self.roster)["degree"] = degree
        self._boxes = {client: self._sealed(client) for client in self.peers}
        for client, peer in self.peers.items():
            around = self.roster.neighbours[client]
            boxes = {one: self._boxes[one][client] for one in around}
            with spent(self.ms if client == 0 else {}, "reading"):
                peer.receive(boxes)

    def _sealed(self, client: int) -> dict[int, bytes]:
        around = self.roster.neighbours[client]
        with spent(self.ms if client == 0 else {}, "shares"):
            sealed, _ = self.peers[client].share(self.roster)
        rows = (sealed[at : at + SEALED_BYTES] for at in range(0, len(sealed), SEALED_BYTES))
        return dict(zip(around, rows, strict=True))


def client(neighbours: int, values: int) -> dict[str, float]:
    """Return the milliseconds of each step of a client in a complete graph."""
    found = Shared(neighbours + 1, Degree(neighbours, (neighbours + neighbours // 20) // 2 + 1))
    own, everybody = found.peers[0], tuple(found.peers)
    draws = np.random.default_rng(1).normal(size=values).astype(np.float32)
    with spent(found.ms, "rounding"):
        whole = quantised(draws, 1.0)
    with spent(found.ms, "masks"):
        words = own.masked(whole)
    with spent(found.ms, "packing"):
        packed(words, word_bits(len(everybody)))
    with spent(found.ms, "confirming"):
        own.confirm(everybody)
    signatures = {one: peer.confirm(everybody) for one, peer in found.peers.items()}
    with spent(found.ms, "opening"):
        own.open(everybody, signatures)
    return {**found.ms, "all": sum(found.ms.values())}


def server(number: int, values: int) -> tuple[float, float, int]:
    """Return the seconds for the secrets and for the masks, and how many clients are lost."""
    found = Shared(number)
    roster, peers = found.roster, found.peers
    lost = round(LOST * number)
    survivors = tuple(range(lost, number))
    signatures = {one: peers[one].confirm(survivors) for one in survivors}
    told = {one: peers[one].open(survivors, signatures) for one in survivors}
    opening = Opening(roster, roster.neighbours, frozenset(survivors))
    began = time.process_time()
    secrets = opening.secrets(told)
    between = time.process_time()
    opening.unmasked(np.zeros(values, np.uint32), secrets)
    return between - began, time.process_time() - between, lost


def bytes_of(number: int, neighbours: int, values: int, proof: int = 0) -> tuple[int, int]:
    """Return the bytes that one client sends and gets, without the model, frames and proofs.

    Args:
        number: of clients.
        neighbours: of one client.
        values: of a model.
        proof: bytes of a certificate and a signature.
    """
    words = packed_bytes(values + 2, word_bits(number))
    up = PUBLIC_BYTES + proof + neighbours * (SEALED_BYTES + SHARE_BYTES) + words + SIGNATURE_BYTES
    listed = 8 * number  # who is in the roster, and who is left
    down = number * (PUBLIC_BYTES + proof + SIGNATURE_BYTES) + 5 * listed
    return up, down + neighbours * (SEALED_BYTES + 8)


@dataclass
class Clients:
    """Clients of one run, each in a thread."""

    address: str
    folder: Path
    number: int

    def __enter__(self) -> Clients:
        self._threads = [
            threading.Thread(target=self._run, args=(client,)) for client in range(self.number)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, client: int) -> None:
        name = identity(client)
        files = ClientTLS(
            self.folder / f"{name}.pem", self.folder / f"{name}.key", self.folder / "ca.pem"
        )
        with join(self.address, client, tls=files, give_up_s=120.0) as one:
            one.run()


def deployed(number: int, rounds: int, privacy: dict[str, Any] | None) -> None:
    """Run rounds over mutual TLS; print seconds, bytes of a client in a round, and memory."""
    with tempfile.TemporaryDirectory(prefix="fedmx-secure-sum-") as name:
        folder = Path(name)
        make_ca(folder)
        make_server_certificate(folder)
        for client in range(number):
            make_client_certificate(folder, identity(client))
        tls = {
            key: str(folder / file)
            for key, file in (
                ("ca", "ca.pem"),
                ("certificate", "server.pem"),
                ("key", "server.key"),
            )
        }
        compute = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}, "engine": "numpy"}
        experiment = Experiment(
            rounds=rounds,
            clients=number,
            compute={**compute, "train": {"steps": 1, "batch_size": 10}},
            logic={"selector": {"name": "uniform", "fraction": 1.0}},
            network={"address": "127.0.0.1:0", "tls": tls, "heartbeat_s": 60},
            privacy=privacy,
        )
        server = serve(experiment, "run")
        before = resident_bytes(os.getpid())
        with server, Clients(server.address, folder, number):
            began, seconds = time.perf_counter(), []
            for one in server:
                seconds.append(time.perf_counter() - began)
                began = time.perf_counter()
                record = one.record()
        values = server.weights.size
        up, down = record["up_bytes"] / number, record["down_bytes"] / number
        grown = (resident_bytes(os.getpid()) - before) / 2**20
        print(
            f"{number} clients over mutual TLS, {values:,} values, "
            f"{'with masks' if privacy else 'without'}: round {min(seconds[1:]):.2f} s, "
            f"{up:,.0f} bytes up and {down:,.0f} down a client, {grown:.0f} MiB more"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=1 << 20)
    parser.add_argument("--clients", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--over-tls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    main(given.values, given.clients, given.over_tls, given.rounds)
