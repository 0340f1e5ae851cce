"""Components that an experiment names: how a name becomes an object.

Names, settings, user code and the wording of messages about them. Nothing here reads a whole
experiment file.
"""
