"""The figures of runs as tables for other programs: rows, CSV and LaTeX.

Nothing here draws, and nothing reads a run folder.
"""
