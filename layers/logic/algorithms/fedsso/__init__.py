"""FedSSO: clients are drawn by strata, which are OPTICS clusters of one-step updates.

A selector without strata belongs in `selectors`.
"""
