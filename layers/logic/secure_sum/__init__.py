"""Secure sums: the server learns the sum of what clients send, and nothing else of it.

Keys, masks, shares of secrets, the graph of neighbours and whole numbers are here, and the two ends
of the protocol. How a round carries them is `layers.logic.privacy.secure_sum`.
"""
