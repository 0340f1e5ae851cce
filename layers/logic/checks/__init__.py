"""Checks of user-written parts: their methods, their settings and their results.

What clients send is checked in `round/validation.py`, and not here. No part is changed here.
"""
