"""Watching: who wants to see what each hook does to a task or an update stands here.

What a watcher shows, and to whom, does not belong here.
"""
