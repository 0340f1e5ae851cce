"""The account of a private run: the noise for its budget, and the epsilon that it has spent.

What is clipped, drawn and hidden is logic, and belongs in `layers.logic.privacy`.
"""
