"""FedSSO: stratified sampling with OPTICS clusters of one-step updates.

Sampling without strata does not belong here.
"""
