"""From an experiment to its parts: data, engine, logic and assets.

Code that runs rounds does not belong here.
"""
