"""The privacy of runs: parts that clip updates, add noise to their sum, and say what is released.

Accounting belongs in `fedmx.privacy`, which knows the rounds of a run.
"""
