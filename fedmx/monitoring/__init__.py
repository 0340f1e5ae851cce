"""Monitoring of a running server: its status, its metrics, and the endpoint that serves them.

Nothing here changes a run, or imports the server or its clients.
"""
