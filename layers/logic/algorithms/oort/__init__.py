"""Oort (Lai et al. 2021): clients whose loss is high and who are fast, and some new ones.

Selectors of one file live in `selectors`.
"""
