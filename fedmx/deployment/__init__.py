"""The deployed run: a server whose clients connect over sockets, and how a client joins it.

Code that a simulation also uses belongs in `fedmx.server` and `fedmx.client`.
"""
