"""The engine on PyTorch: a module on one flat vector.

Only this package imports torch; it knows no rounds, clients and data sets.
"""
