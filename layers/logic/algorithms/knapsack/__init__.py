"""Selection by time and value: FedCS, OfflineKP-FL and OnlineKP-FL.

The knapsack solvers live in `numeric.knapsack`.
"""
