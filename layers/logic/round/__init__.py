"""One round: the server's stations, the client's half, and the logic that both share.

No single algorithm lives here.
"""
