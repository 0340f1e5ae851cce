"""What an operator sees of a server while it runs: its status, metrics, and who may read them.

Nothing here changes a run, and nothing of the server or of its clients comes in.
"""
