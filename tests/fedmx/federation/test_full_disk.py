"""A full disk stops a federation's queue with the reason, and the queue goes on once there is room.

The disk is a small file system of its own in memory.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx.errors import FedmxError
from tests.fedmx.processes import until
from tests.fedmx.standing import Standing, experiment

PAGE = 4096


class Disk:
    """A file system of 8 MiB.

    Args:
        folder: where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(PAGE))

    def free(self) -> None:
        """Leave room again."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "fed"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this process may not mount a file system")
    yield Disk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def standing(disk: Disk, tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        yield found


def test_the_queue_waits_for_room_and_goes_on(disk: Disk, standing: Standing) -> None:
    server = standing.serve()
    with standing.operator() as operator:
        first = operator.submit(experiment())
        disk.fill()
        with pytest.raises(FedmxError, match="space"):
            operator.submit(experiment())
        assert operator.order("jobs")["all"] == 1
        for name in ("bonn", "ulm"):  # they accept, and the job's files have no room
            standing.site(name)
        until(lambda: "the queue waits" in server.output, lambda: server.output)
        disk.free()
        assert standing.over(operator, first)["state"] == "done"
        second = operator.submit(experiment())
        assert standing.over(operator, second)["state"] == "done"
        disk.fill()
        with pytest.raises(FedmxError, match="space"):
            operator.fetch(second, standing.folder / "copy", standing.folder / "received")
        assert not [*disk.folder.glob("jobs/*/*.part")]
        disk.free()
        operator.fetch(second, standing.folder / "copy", standing.folder / "received")


def test_a_site_whose_disk_is_full_takes_part_later(disk: Disk, standing: Standing) -> None:
    standing.serve(folder="served")
    site = standing.site("ulm", "", "--memory", str(disk.folder))
    site.line("connected to")
    disk.fill()
    with standing.operator() as operator:
        job = operator.submit(experiment(clients=1))
        replies = until(lambda: operator.order("job", job)["replies"], lambda: site.output)
        assert ("not now" in replies["ulm"], "space" in replies["ulm"]) == (True, True)
        disk.free()
        operator.order("cancel", job)
        assert standing.over(operator, operator.submit(experiment(clients=1)))["state"] == "done"
