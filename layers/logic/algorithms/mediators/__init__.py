"""What FedAIM and Astraea share: label histograms, and the order of clients at mediators.

Nothing that only one of the two needs.
"""
