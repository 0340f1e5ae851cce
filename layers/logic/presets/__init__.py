"""How a preset is made: an algorithm's name stands for a selector, an aggregator and hooks.

The presets themselves do not belong here: they are with their algorithms, or in the catalogue.
"""
