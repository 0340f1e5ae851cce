"""The server's end of a run: it runs rounds, evaluates the model and records both.

Sockets, processes and the command line do not belong here.
"""
