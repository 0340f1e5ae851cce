"""The runs and sweeps in a folder: a row for each, for the terminal, for JSON and for a page.

Nothing here writes to a run folder.
"""
