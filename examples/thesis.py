"""The picture of the thesis: a server and clients, each made of a network, a logic and a compute.

The server and its clients are processes of their own, connected over loopback.
"""

from __future__ import annotations

import multiprocessing

import numpy as np

from fedmx import (
    CODEC,
    Client,
    Compute,
    Connector,
    Files,
    Listener,
    Logic,
    MXNetEngine,
    Raw,
    RemoteClients,
    Samples,
    Server,
    Training,
)
from fedmx.parts import Digits, Uniform, two_nn

CLIENTS, ROUNDS = 3, 8
DIGITS = Digits().load(Files())


def compute(raw: Raw) -> Compute:
    """Return the top layer: a model, and the samples that train or evaluate it."""
    engine = MXNetEngine(two_nn, DIGITS.shape, DIGITS.targets)
    return Compute(engine, Samples(raw.x.astype(np.float32) / 16, raw.y))


def logic(compute: Compute) -> Logic:
    """Return the layer between: FedAvg, with two of the three clients in each round."""
    training = Training(epochs=2, batch_size=10, learning_rate=0.02)
    return Logic(compute.engine.layout, Uniform(count=2), training=training, seed=1)


def server() -> Server:
    network = RemoteClients(Listener("127.0.0.1:0", CODEC), wait_for=CLIENTS)
    evaluated = compute(DIGITS.test)
    return Server(network, logic(evaluated), evaluated, last_round=ROUNDS)


def client(address: str, number: int) -> Client:
    network = Connector(address, f"client-{number}", CODEC)
    x, y = DIGITS.train.x[number::CLIENTS], DIGITS.train.y[number::CLIENTS]
    own = compute(Raw(x, y))  # these samples never leave the client
    return Client(network, logic(own), own)


def take_part(address: str, number: int) -> None:
    with client(address, number) as one:
        print(f"client {number}: {one.run()}")


def main() -> None:
    process = multiprocessing.get_context("spawn").Process
    with server() as running:
        given = [(running.address, number) for number in range(CLIENTS)]
        clients = [process(target=take_part, args=one, daemon=True) for one in given]
        for one in clients:
            one.start()
        for round in running:
            print(f"round {round.round}: clients {round.participants}, {round.accuracy:.2%}")
    for one in clients:
        one.join()
    print(f"final accuracy {round.accuracy:.2%}")


if __name__ == "__main__":
    main()
