"""Astraea (Duan et al. 2019): balanced mediators, and rebalanced local samples.

What FedAIM needs as well belongs in `mediators`.
"""
