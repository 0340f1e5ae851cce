"""The sections of a report's page: each puts records and figures into HTML.

Nothing here computes a figure of its own.
"""
