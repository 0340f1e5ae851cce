"""Bytes between a server and its clients: messages, files, sessions, TLS. Knows no models."""

from layers.network.address import Address
from layers.network.backoff import Backoff
from layers.network.certificates import make_ca, make_client_certificate, make_server_certificate
from layers.network.connector import Connector
from layers.network.errors import (
    AddressError,
    AuthenticationFailed,
    CertificateError,
    IdentityTaken,
    LimitExceeded,
    MalformedFrame,
    MalformedMessage,
    MessageTypeError,
    NetworkError,
    NotConnected,
    ProtocolError,
    TransferError,
    VersionMismatch,
)
from layers.network.events import (
    Connected,
    Disconnected,
    Event,
    FileFailed,
    FileReceived,
    FileSent,
    GaveUp,
    Joined,
    Left,
    Received,
    Refused,
    Retrying,
    Sent,
)
from layers.network.file_size import file_wire_size
from layers.network.frames import CHUNK_BYTES, wire_size
from layers.network.limits import Limits
from layers.network.listener import Listener
from layers.network.messages import Codec
from layers.network.payload import Payload
from layers.network.tls import ClientTLS, ServerTLS
from layers.network.traffic import Traffic

__all__ = [
    "Address",
    "AddressError",
    "AuthenticationFailed",
    "Backoff",
    "CHUNK_BYTES",
    "CertificateError",
    "ClientTLS",
    "Codec",
    "Connected",
    "Connector",
    "Disconnected",
    "Event",
    "FileFailed",
    "FileReceived",
    "FileSent",
    "GaveUp",
    "IdentityTaken",
    "Joined",
    "Left",
    "LimitExceeded",
    "Limits",
    "Listener",
    "MalformedFrame",
    "MalformedMessage",
    "MessageTypeError",
    "NetworkError",
    "NotConnected",
    "Payload",
    "ProtocolError",
    "Received",
    "Refused",
    "Retrying",
    "Sent",
    "ServerTLS",
    "Traffic",
    "TransferError",
    "VersionMismatch",
    "file_wire_size",
    "make_ca",
    "make_client_certificate",
    "make_server_certificate",
    "wire_size",
]
