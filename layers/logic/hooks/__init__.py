"""The hooks that are one file each: an idea that changes tasks, local steps, updates or models.

A hook that belongs to an algorithm of several parts lives in `algorithms`.
"""
