"""The journal of a run: what each round was told and what it answered, and the hashes of a run.

The files of a run folder are in `fedmx.run`; what reads a journal again is in `fedmx.history`.
"""
