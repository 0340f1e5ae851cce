"""The protocol without any I/O: frames, the words of the handshake, messages in chunks, limits.

No socket, thread or clock comes in, and nothing of the session.
"""
