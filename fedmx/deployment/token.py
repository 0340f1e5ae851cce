"""The shared secret of a deployment's two ends, read from a file."""

from __future__ import annotations

from pathlib import Path

from fedmx.errors import FedmxError


def read_token(path: Path | None) -> bytes | None:
    """Return the shared secret in a file, without the white space around it.

    Raises:
        FedmxError: the file cannot be read, or holds fewer than 16 bytes.
    """
    if path is None:
        return None
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise FedmxError(f"{path}: the token cannot be read ({error.strerror})") from None
    if len(token) < 16:
        raise FedmxError(f"{path}: a token of {len(token)} bytes; use 16 or more random ones")
    return token
