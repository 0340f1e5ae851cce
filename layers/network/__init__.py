"""The network layer: messages and files between a server and its clients, over sessions and TLS.

Nothing of the other layers or of fedmx comes in, and no model: a message is bytes and types here.
From outside it imports numpy, msgpack and cryptography.
"""

from layers.network.encoding.codec import MessageCodec
from layers.network.encoding.payload import Payload
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
from layers.network.files.expected import ExpectedFile
from layers.network.files.file_size import file_wire_size
from layers.network.protocol.frames import CHUNK_BYTES, wire_size
from layers.network.protocol.limits import Limits
from layers.network.protocol.traffic import ConnectionTraffic
from layers.network.transport.address import Address
from layers.network.transport.backoff import Backoff
from layers.network.transport.connector import Connector
from layers.network.transport.events import (
    CertificatesRefused,
    CertificatesRenewed,
    Connected,
    ConnectionRejected,
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
from layers.network.transport.listener import Listener
from layers.network.trust.certificates import (
    make_ca,
    make_client_certificate,
    make_server_certificate,
)
from layers.network.trust.revocation import make_crl, revoke
from layers.network.trust.tls import ClientTLS, ServerTLS

__all__ = [
    "Address",
    "AddressError",
    "AuthenticationFailed",
    "Backoff",
    "CHUNK_BYTES",
    "CertificateError",
    "CertificatesRefused",
    "CertificatesRenewed",
    "ClientTLS",
    "Connected",
    "ConnectionRejected",
    "ConnectionTraffic",
    "Connector",
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
