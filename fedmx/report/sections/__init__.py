"""The sections of a report's page, which put records and figures into HTML.

Nothing here computes a figure.
"""
