"""The selectors of one file: each says who takes part in a round.

A selector with a hook or an aggregator of its own belongs in `algorithms`.
"""
