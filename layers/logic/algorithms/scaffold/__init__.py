"""SCAFFOLD (Karimireddy et al. 2020): control variates against client drift.

Other corrections of local steps live in `hooks`.
"""
