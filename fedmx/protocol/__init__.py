"""The messages between a server and its clients: a closed table.

Sockets, and code that only one of the two ends needs, do not belong here.
"""
