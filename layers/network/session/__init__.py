"""The session of one connection: what may be said when, by which end, and when it is over.

No socket, thread or clock comes in: time is an argument.
"""
