"""Algorithms of several parts: one module each, with its parts and its preset.

An algorithm of a single part belongs in `selectors`, `aggregators` or `hooks`.
"""
