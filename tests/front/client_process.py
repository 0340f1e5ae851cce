"""A process of its own for clients, one after the other: MXNet is loaded once for many tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ClientProcess:
    """Takes part in one run after the other, until it is killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def start(self, address: str, client: int, memory: Path) -> None:
        """Let it take part in the run at `address`."""
        assert self._process.stdin is not None
        print(json.dumps([address, client, str(memory)]), file=self._process.stdin, flush=True)

    def finished(self) -> str:
        """Return why the run was over, once it is."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """End it as a power cut does."""
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Take part in the runs that come in on standard input."""
    sys.path.insert(0, str(ROOT))
    from fedmx import join

    for line in sys.stdin:
        address, client, memory = json.loads(line)
        with join(address, client, memory=Path(memory)) as one:
            print(one.run(), flush=True)


if __name__ == "__main__":
    main()
