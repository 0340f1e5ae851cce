"""The commands that work on recorded runs as on something that can be run again.

Commands that run an experiment for the first time, or only show a record, do not belong here.
"""
