"""What a test's client expects of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from layers.network import ExpectedFile


def expected(source: Path, name: str) -> ExpectedFile:
    content = source.read_bytes()
    return ExpectedFile(name, len(content), hashlib.sha256(content).digest())
