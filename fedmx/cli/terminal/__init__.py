"""What the command line draws and says: tables, progress, errors, logs.

No command lives here.
"""
