"""The data of a report, read from run folders.

No HTML and no drawing here.
"""
