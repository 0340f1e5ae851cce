"""A server on the network layer alone: python server.py, then python client.py ADDRESS."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from messages import CODEC, Ready, Result, Work

from layers.network import (
    FileReceived,
    Joined,
    Left,
    Listener,
    Received,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_server_certificate,
)

CERTIFICATES = Path("certificates")
TASK = Path("task.txt")


def main() -> None:
    if not CERTIFICATES.exists():
        make_ca(CERTIFICATES)
        make_server_certificate(CERTIFICATES)
        make_client_certificate(CERTIFICATES, "client-1")
    TASK.write_text("add one to each weight\n")
    certificate, key, ca = (CERTIFICATES / name for name in ("server.pem", "server.key", "ca.pem"))
    tls = ServerTLS(certificate, key, ca)
    with Listener("127.0.0.1:0", CODEC, tls=tls, files=Path("received")) as listener:
        print(f"listening on {listener.address}", flush=True)
        while not isinstance(event := listener.next_event(), Left):
            match event:
                case Joined(peer=peer):
                    print(f"{peer} joined")
                case Received(peer=peer, message=Ready(cores=cores), wire_bytes=size):
                    print(f"{peer} is ready with {cores} cores ({size} bytes)")
                    content = TASK.read_bytes()
                    sha256 = hashlib.sha256(content).digest()
                    weights = np.arange(4, dtype=np.float32)
                    listener.send(peer, Work(weights, TASK.name, len(content), sha256))
                    listener.send_file(peer, TASK)
                case Received(peer=peer, message=Result(change=change, loss=loss)):
                    print(f"{peer} changed the weights by {change.tolist()}, loss {loss}")
                case FileReceived(peer=peer, path=path):
                    print(f"{peer} sent {path}: {path.read_text().strip()}")
        print(f"{event.peer} left: {event.reason}")


if __name__ == "__main__":
    main()
