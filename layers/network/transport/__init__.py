"""Sockets, TLS, threads: the listener of a server and the connector of a client.

What the bytes mean belongs to the protocol.
"""
