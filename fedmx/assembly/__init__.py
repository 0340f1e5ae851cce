"""From an experiment to its parts: data, engine, logic and assets.

Nothing here runs a round.
"""
