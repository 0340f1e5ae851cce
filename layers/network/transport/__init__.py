"""Sockets, TLS and threads: the listener of a server and the connector of a client.

Nothing about the meaning of bytes comes in: the protocol knows that.
"""
