"""A standing federation: sites stay, experiments come and go.

A federation's server has a queue of jobs. Each job is an ordinary deployed run, in a process of its
own, whose clients are sites that accepted it.
"""
