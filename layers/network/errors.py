"""The errors of the network layer: one root, and one class for each thing that can go wrong."""

from __future__ import annotations

BOTH_OR_NEITHER = "give both ends certificates, or neither"
"""What to do when one end has TLS and the other does not."""


class NetworkError(Exception):
    """Any error of the network layer; the message is one line.

    Attributes:
        code: names the error in a refusal that is sent to the peer.
        final: whether it is pointless to try again without a change.
    """

    code = "network-error"
    final = False


class ProtocolError(NetworkError):
    """The peer did something that its state does not allow."""

    code = "protocol-error"


class MalformedFrame(NetworkError):
    """Bytes that are not a frame of this protocol."""

    code = "malformed-frame"


class MalformedMessage(NetworkError):
    """A payload that is not one of the agreed messages."""

    code = "malformed-message"


class MessageTypeError(NetworkError):
    """A message, or a type of message, that this layer cannot encode."""

    code = "message-type"


class LimitExceeded(NetworkError):
    """Something is larger, or there is more of it, than the receiving end allows."""

    code = "limit-exceeded"


class VersionMismatch(NetworkError):
    """The two ends have no version of the protocol in common."""

    code = "version-mismatch"
    final = True


class AuthenticationFailed(NetworkError):
    """A token, certificate or identity that does not prove what it claims."""

    code = "authentication-failed"
    final = True


class IdentityTaken(NetworkError):
    """The claimed identity is connected already."""

    code = "identity-taken"


class AddressError(NetworkError):
    """An address that cannot be read, listened on or used safely."""

    code = "address"
    final = True


class CertificateError(NetworkError):
    """A certificate or key that is missing, unreadable, expired or not trusted."""

    code = "certificate"
    final = True


class TransferError(NetworkError):
    """A file that could not be sent or received."""

    code = "transfer"


class NotWanted(TransferError):
    """A file that nobody waits for any more: its connection has ended, or it was given up."""


class UnexpectedFile(NetworkError):
    """The peer offers a file that was not announced."""

    code = "unexpected-file"
    final = True


class NotConnected(NetworkError):
    """There is no open session with the peer."""

    code = "not-connected"
