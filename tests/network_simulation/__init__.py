"""A real server and clients in one thread, with simulated time, network, disks and scheduling.

Nothing here is imported by fedmx; `python -m tests.network_simulation --help` runs seeds.
"""
