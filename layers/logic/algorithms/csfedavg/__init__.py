"""CSFedAvg (Zhang et al. 2021): clients whose models diverge least.

Other selectors live in `selectors`.
"""
