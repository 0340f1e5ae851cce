"""The aggregators of one file: each turns the updates of a round into the next model.

An aggregator with a selector of its own belongs in `algorithms`.
"""
