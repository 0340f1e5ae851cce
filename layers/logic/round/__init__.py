"""One round: the server's side, the client's side, and the logic that both share.

Single algorithms do not belong here.
"""
