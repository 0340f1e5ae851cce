"""How objects show themselves: as tables of a notebook, and as frames of pandas.

No experiment, run or server comes in: who shows itself gives texts and records.
"""
