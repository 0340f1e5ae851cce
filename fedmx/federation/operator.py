"""An operator's end: orders to a federation's server, and its answers."""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from fedmx.errors import FedmxError
from fedmx.federation.author import sign
from fedmx.federation.messages import CODEC, Answered, Order, Submit
from layers.network import (
    ClientTLS,
    Connected,
    Connector,
    Disconnected,
    ExpectedFile,
    FileFailed,
    FileReceived,
    GaveUp,
    Received,
)
from layers.network.certificates import common_name_of

FOLLOW_S = 1.0  # between two looks at a log
PATIENCE_S = 60.0


class Operator:
    """A connection to a federation, inside a with statement.

    Args:
        address: of the federation, HOST:PORT.
        tls: the operator's certificate, its key, and the authority.
        files: the folder into which files are received; None: none are.
    """

    def __init__(self, address: str, tls: ClientTLS, files: Path | None = None) -> None:
        assert tls.certificate is not None
        self._tls = tls
        name = common_name_of(tls.certificate)
        self._network = Connector(address, name, CODEC, tls=tls, give_up_s=PATIENCE_S, files=files)

    def __enter__(self) -> Operator:
        self._network.start()
        self._wait(Connected)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._network.close()

    def submit(self, experiment: str, sites: tuple[str, ...] = ()) -> str:
        """Sign an experiment, put it into the queue, and return the name of its job.

        Args:
            experiment: its resolved text.
            sites: which sites it is offered to; empty: all.

        Raises:
            FedmxError: the server refuses it, or does not answer.
        """
        assert self._tls.certificate is not None
        assert self._tls.key is not None
        proof = sign(experiment, self._tls.certificate, self._tls.key)
        return str(self._said(Submit(experiment, sites, proof))["job"])

    def order(self, name: str, about: str = "", offset: int = 0) -> Any:
        """Give an order, and return the answer.

        Raises:
            FedmxError: the server refuses it, or does not answer.
        """
        return self._said(Order(name, about, offset))

    def follow(self, job: str) -> Iterator[str]:
        """Yield what a job's server logs, until the job is over."""
        offset = 0
        while True:
            found = self.order("log", job, offset)
            if found["text"]:
                yield found["text"]
            elif found["over"]:
                return
            else:
                time.sleep(FOLLOW_S)
            offset = found["offset"]

    def fetch(self, job: str, to: Path, archives: Path) -> Path:
        """Receive the run folder of a job into a folder; return it.

        A transfer that was interrupted goes on where it ended.

        Args:
            job: the job.
            to: the folder, which must not exist.
            archives: the folder of unfinished transfers, that of `files`.

        Raises:
            FedmxError: the job is not over, the file does not arrive, or `to` exists.
        """
        if to.exists():
            raise FedmxError(f"{to}: exists already; give another folder")
        found = self.order("archive", job)
        digest = bytes.fromhex(found["sha256"])
        self._network.expect([ExpectedFile(found["file"], found["bytes"], digest)])
        self.order("send", job)
        received = self._wait(FileReceived)
        try:
            with tarfile.open(received.path) as tar:
                temporary = archives / f"{job}.unpacked"
                tar.extractall(temporary, filter="data")
            (run,) = temporary.iterdir()
            to.parent.mkdir(parents=True, exist_ok=True)
            run.rename(to)
            temporary.rmdir()
        except (OSError, ValueError, tarfile.TarError) as error:
            raise FedmxError(f"{to}: the archive cannot be unpacked ({error})") from None
        finally:
            received.path.unlink(missing_ok=True)
        return to

    def _said(self, message: object) -> Any:
        self._network.send(message)
        answer = self._wait(Received).message
        if not isinstance(answer, Answered):
            raise FedmxError("the server sends what is not an answer; is it a federation?")
        if answer.error:
            raise FedmxError(answer.error)
        return json.loads(answer.content)

    def _wait(self, kind: Any) -> Any:
        while True:
            event = self._network.next_event(PATIENCE_S)
            if isinstance(event, kind):
                return event
            if event is None:
                raise FedmxError(f"{self._network.address}: no answer in {PATIENCE_S:g} s")
            if isinstance(event, GaveUp | Disconnected):
                raise FedmxError(event.reason)
            if isinstance(event, FileFailed):
                raise FedmxError(f"{event.name}: {event.reason}")
