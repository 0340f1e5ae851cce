"""A run folder as a whole: its files, its records and checkpoints, how it begins and how it ends.

How one file is written and read does not belong here: that is the room above.
"""
