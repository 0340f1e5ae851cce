"""The aggregators of one file: each turns the updates of a round into the next model.

An aggregator that belongs to an algorithm of several parts lives in `algorithms`.
"""
