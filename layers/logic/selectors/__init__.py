"""The selectors that need one module only: each chooses the clients of a round.

A selector with a hook or an aggregator of its own belongs in `algorithms`.
"""
