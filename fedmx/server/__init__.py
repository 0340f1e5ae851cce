"""The server's end of a run: it runs rounds, evaluates the global model and records the run.

Sockets, worker processes and the command line do not belong here.
"""
