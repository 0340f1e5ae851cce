"""The executors that an experiment can name, besides ``serial``, one in each module.

To add one, define its `EXECUTOR` in a module with its name. Nothing here imports numpy or a worker
at the top of a module, since commands that only explain keys read these modules too.
"""
