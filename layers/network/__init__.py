"""The network layer: messages and files between a server and its clients, over sessions and TLS.

Nothing of the other layers or of fedmx comes in, and no model: a message is bytes and types here.
From outside it imports numpy, msgpack and cryptography.
"""

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
    LimitExceeded,
    MalformedFrame,
    MalformedMessage,
    MessageTypeError,
    NetworkError,
    NotConnected,
    TransferError,
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
from layers.network.frames import CHUNK_BYTES, wire_size
from layers.network.limits import Limits
from layers.network.listener import Listener
from layers.network.payload import Payload
from layers.network.tls import ClientTLS, ServerTLS
from layers.network.transfers import ExpectedFile
