"""The figures of a report: plots as SVG, and HTML elements.

Nothing here reads a run folder.
"""
