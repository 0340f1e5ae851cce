"""Arithmetic on vectors that several algorithms share.

Nothing here knows a client or a round.
"""
