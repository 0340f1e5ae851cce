"""The protocol without any I/O: frames, handshake, sessions and streams.

No socket, thread or clock comes in: time is an argument.
"""
