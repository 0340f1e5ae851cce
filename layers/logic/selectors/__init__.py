"""The selectors of one file: each says who takes part in a round.

A selector that belongs to an algorithm of several parts lives in `algorithms`.
"""
