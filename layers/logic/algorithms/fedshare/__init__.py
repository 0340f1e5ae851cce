"""FedShare (Zhao et al. 2018): a small balanced set that all clients train on.

How the set travels is the business of assets, not of this folder.
"""
