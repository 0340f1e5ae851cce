"""The algorithms of several parts: a folder for each, with its parts, its preset, what they share.

An algorithm of one file belongs in `selectors`, `aggregators` or `hooks`.
"""
