"""The commands on many runs: ``fedmx sweep`` and ``fedmx runs``, and how they show them.

What a sweep is and what its numbers say is in `fedmx.sweeps`; nothing here starts a process.
"""
