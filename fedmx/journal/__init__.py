"""The journal of a run: the events and commands of each round, and the hashes of a run.

The files of a run folder are in `fedmx.run`; what reads a journal again is in `fedmx.history`.
"""
