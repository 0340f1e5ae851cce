"""The client's end of a run: it receives tasks, trains and sends updates.

The server's side of many clients does not belong here.
"""
