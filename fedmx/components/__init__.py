"""The components that an experiment names: how a name and its settings become an object.

The wording of messages is here, too. Nothing here reads a whole experiment file.
"""
