"""The course of a run: what the server was told, and the hashes that prove what came of it.

Belongs here: hashes of models, messages and rounds, and what is noted while a round is run. Does
not belong here: the files of a run folder (`fedmx.run`).
"""
