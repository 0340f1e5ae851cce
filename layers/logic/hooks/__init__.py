"""The hooks of one file: each is an idea that changes tasks, local steps or updates.

A hook that belongs to an algorithm of several parts lives in `algorithms`.
"""
