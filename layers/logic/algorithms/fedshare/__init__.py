"""FedShare (Zhao et al. 2018): a small balanced set that all clients train on.

How the set is taken out of the data and sent does not belong here: `fedmx` does both.
"""
