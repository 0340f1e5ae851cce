"""All clients of an experiment on this machine or on a cluster, behind the same messages.

No sockets to clients here.
"""
