"""The network layer: messages and files between a server and its clients, over sessions and TLS.

Nothing of the other layers or of fedmx comes in, and no model: a message is bytes and types here.
From outside it imports numpy, msgpack and cryptography.
"""

from layers.network.address import Address
from layers.network.certificates import (
    make_ca,
    make_client_certificate,
    make_crl,
    make_server_certificate,
    revoke,
)
from layers.network.codec import MessageCodec
from layers.network.connector import Backoff, Connector
from layers.network.control import file_wire_size
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
    UnexpectedFile,
    VersionMismatch,
)
from layers.network.events import (
    CertificatesRefused,
    CertificatesRenewed,
    Connected,
    ConnectionRejected,
    Contested,
    Crowded,
    Disconnected,
    Event,
    FileFailed,
    FileReceived,
    FileSent,
    GaveUp,
    Joined,
    Left,
    Received,
    Replaced,
    Retrying,
    RoomAgain,
    Sent,
)
from layers.network.expiry import CertificateExpires
from layers.network.frames import CHUNK_BYTES, ConnectionTraffic, wire_size
from layers.network.limits import Limits
from layers.network.listener import Listener
from layers.network.payload import Payload
from layers.network.tls import ClientTLS, ServerTLS
from layers.network.transfers import ExpectedFile

__all__ = [
    "Address",
    "AddressError",
    "AuthenticationFailed",
    "Backoff",
    "CHUNK_BYTES",
    "CertificateError",
    "CertificateExpires",
    "CertificatesRefused",
    "CertificatesRenewed",
    "ClientTLS",
    "Connected",
    "ConnectionRejected",
    "ConnectionTraffic",
    "Connector",
    "Contested",
    "Crowded",
    "Disconnected",
    "Event",
    "ExpectedFile",
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
    "MessageCodec",
    "MessageTypeError",
    "NetworkError",
    "NotConnected",
    "Payload",
    "ProtocolError",
    "Received",
    "Replaced",
    "Retrying",
    "RoomAgain",
    "Sent",
    "ServerTLS",
    "TransferError",
    "UnexpectedFile",
    "VersionMismatch",
    "file_wire_size",
    "make_ca",
    "make_client_certificate",
    "make_crl",
    "make_server_certificate",
    "revoke",
    "wire_size",
]
