"""The algorithms of several parts: one folder each, with all parts and the preset.

An algorithm of one file lives in `selectors`, `aggregators` or `hooks`.
"""
