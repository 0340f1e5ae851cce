"""What travels between a server and its clients: the closed table of messages.

No sockets here, and nothing that only one of the two ends needs.
"""
