"""The client's end of a run: it takes tasks, trains and sends updates.

What the server does to reach many clients does not belong here.
"""
