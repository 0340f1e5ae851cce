"""CSFedAvg (Zhang et al. 2021): the clients whose models diverge least take part.

A selector that does without the hook `divergence` belongs in `selectors`.
"""
