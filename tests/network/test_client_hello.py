"""The protocols of a TLS client are read from its first bytes, whatever they are."""

from __future__ import annotations

import random
import ssl

import pytest

from layers.network.client_hello import MOST_BYTES, Malformed, protocols


def hello(*names: str, host: str | None = "fed.example.org") -> bytes:
    """The first bytes of a real client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if names:
        context.set_alpn_protocols(list(names))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("names", [(), ("fedmx",), ("h2", "http/1.1", "fedmx-job-000001")])
@pytest.mark.parametrize("host", ["fed.example.org", None])
def test_a_client_says_what_it_asks_for(names: tuple[str, ...], host: str | None) -> None:
    content = hello(*names, host=host)
    assert protocols(content) == names
    assert protocols(content + b"more") == names
    assert {protocols(content[:size]) for size in range(len(content))} == {None}


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        bytes([22, 3, 1, 0xFF, 0xFF]) + bytes(5),  # longer than any hello
        bytes([22, 3, 1, 0, 4, 2, 0, 0, 0]),  # a server's hello
        bytes([22, 3, 1, 0, 4, 1, 0, 0, 9]),  # one that ends too early
    ],
)
def test_other_bytes_are_named_so(content: bytes) -> None:
    with pytest.raises(Malformed):
        protocols(content)


def test_changed_bytes_give_an_answer_and_no_other_error() -> None:
    draw, content = random.Random(1), hello("fedmx")
    for _ in range(2000):
        changed = bytearray(content)
        for _ in range(draw.randint(1, 8)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        try:
            found = protocols(bytes(changed[: draw.randint(0, MOST_BYTES)]))
        except Malformed:
            continue
        assert found is None or all(isinstance(name, str) for name in found)
