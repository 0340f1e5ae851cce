"""Codecs, pure functions between vectors and bytes, and the sides of hooks that use them.

No hook is defined here: those are in `hooks`.
"""
