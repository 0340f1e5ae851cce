"""What FedAIM and Astraea share: label histograms, and the order of clients at mediators.

What only one of the two needs belongs in its own folder.
"""
