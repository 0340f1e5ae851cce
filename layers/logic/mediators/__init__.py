"""Mediators: biased clients put in line so that each line's data together are as little biased."""
