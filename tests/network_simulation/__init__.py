"""A deployment in one thread: the real ends, with time, network, disk and scheduling from a seed.

Nothing here is imported by fedmx; `python -m tests.network_simulation --help` runs seeds.
"""
