"""Checks of user-written parts: their methods, their settings and their results.

`round/validation.py` checks the updates of clients. Nothing here changes a part.
"""
