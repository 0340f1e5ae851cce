"""What a report draws: plots as SVG, and HTML elements.

Nothing here reads a run folder.
"""
