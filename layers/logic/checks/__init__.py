"""Checks of user-written parts: their methods and settings, and what they return.

What clients send is checked in `round/validation.py`, and not here. No part is changed here.
"""
