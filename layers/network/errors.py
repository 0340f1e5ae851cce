"""The errors of the network layer."""

from __future__ import annotations

BOTH_OR_NEITHER = "give both ends certificates, or neither"
"""Advice for the case that only one end uses TLS."""


class NetworkError(Exception):
    """Any error of the network layer; the message is one line.

    Attributes:
        code: names the error in a refusal that is sent to the peer.
        final: whether a retry is pointless.
    """

    code = "network-error"
    final = False


class ProtocolError(NetworkError):
    """The peer did something that the session's state does not allow."""

    code = "protocol-error"


class MalformedFrame(NetworkError):
    """The bytes are not a frame of this protocol."""

    code = "malformed-frame"


class MalformedMessage(NetworkError):
    """A payload is not one of the agreed messages."""

    code = "malformed-message"


class MessageTypeError(NetworkError):
    """A message or a message type cannot be encoded."""

    code = "message-type"


class LimitExceeded(NetworkError):
    """Something exceeds a limit of the receiving end."""

    code = "limit-exceeded"


class VersionMismatch(NetworkError):
    """The two ends have no version of the protocol in common."""

    code = "version-mismatch"
    final = True


class AuthenticationFailed(NetworkError):
    """A token, certificate or identity is not valid."""

    code = "authentication-failed"
    final = True


class IdentityTaken(NetworkError):
    """The claimed identity is connected already."""

    code = "identity-taken"


class IdentityContested(NetworkError):
    """Connections of one identity have replaced each other too often."""

    code = "identity-contested"


class AddressError(NetworkError):
    """An address cannot be parsed, listened on or used safely."""

    code = "address"
    final = True


class CertificateError(NetworkError):
    """A certificate or key is missing, unreadable, expired or not trusted."""

    code = "certificate"
    final = True


class TransferError(NetworkError):
    """A file could not be sent or received."""

    code = "transfer"


class NotWanted(TransferError):
    """A file is no longer wanted: its connection has ended, or it was cancelled."""


class UnexpectedFile(NetworkError):
    """The peer offered a file that was not announced."""

    code = "unexpected-file"
    final = True


class NotConnected(NetworkError):
    """There is no open session with the peer."""

    code = "not-connected"
