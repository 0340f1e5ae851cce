"""The commands that work on a project's files, before there is a run.

Commands that run an experiment, or show a run, do not belong here.
"""
