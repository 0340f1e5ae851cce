"""A client on the network layer alone: python client.py ADDRESS, in the folder of the server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from messages import CODEC, Ready, Result, Work

from layers.network import (
    ClientTLS,
    Connected,
    Connector,
    ExpectedFile,
    FileReceived,
    FileSent,
    GaveUp,
    Received,
)

CERTIFICATES = Path("certificates")
LOG = Path("log.txt")


def main(address: str) -> None:
    certificate, key, ca = (
        CERTIFICATES / name for name in ("client-1.pem", "client-1.key", "ca.pem")
    )
    tls = ClientTLS(certificate, key, ca)
    with Connector(address, "client-1", CODEC, tls=tls, files=Path("tasks")) as connector:
        while not isinstance(event := connector.next_event(), FileSent | GaveUp):
            match event:
                case Connected(peer=peer):
                    print(f"connected to {peer}")
                    connector.send(Ready(os.cpu_count() or 1))
                case Received(message=Work() as work):
                    connector.expect([ExpectedFile(work.file, work.size_bytes, work.sha256)])
                    print(f"weights {work.weights.tolist()}")
                    connector.send(Result(work.weights * 0 + 1, 0.5))
                case FileReceived(path=path):
                    print(f"the task: {path.read_text().strip()}")
                    LOG.write_text("added one\n")
                    connector.send_file(LOG)
        print(event)


if __name__ == "__main__":
    main(sys.argv[1])
