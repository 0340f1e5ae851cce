"""Typed messages to bytes and back.

No frames and no sockets here.
"""
