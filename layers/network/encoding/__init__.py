"""Typed messages to bytes and back.

No frame and no socket comes in.
"""
