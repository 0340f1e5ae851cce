"""A server whose clients connect over sockets, and how a client joins it.

What a simulation shares with it belongs to `fedmx.server` and `fedmx.client`.
"""
