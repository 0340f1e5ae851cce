"""Astraea (Duan et al. 2019): balanced mediators, and rebalanced local samples.

What FedAIM shares with it lives in `mediators`.
"""
