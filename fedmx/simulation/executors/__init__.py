"""Executors do the work of simulated clients: in this process, in others, or on a cluster.

The order of events and the messages of a round do not belong here.
"""
