"""FedShare (Zhao et al. 2018): a small balanced set that all clients train on.

The set is an asset that the hook declares; nothing here knows how it travels.
"""
