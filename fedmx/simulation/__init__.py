"""The simulated run: all clients on this machine or on a cluster, with a deployment's messages.

Sockets to clients do not belong here.
"""
