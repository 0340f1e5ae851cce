"""One module for each command, and what only commands need.

Drawing on the terminal belongs to `fedmx.cli.terminal`.
"""
