"""SCAFFOLD (Karimireddy et al. 2020): control variates against client drift.

Another correction of local steps belongs in `hooks`.
"""
