"""One round: the server's half, the client's half, and the logic that both share.

Single algorithms do not belong here.
"""
