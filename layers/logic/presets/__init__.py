"""How a preset is made: an algorithm's name stands for a selector, an aggregator and hooks.

The presets themselves stand with their algorithm, or in the catalogue.
"""
