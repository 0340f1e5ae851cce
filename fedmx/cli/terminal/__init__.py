"""What the command line writes to a terminal: tables, progress, errors, logs.

No command lives here.
"""
