"""Data to look at: how a partition shares out the samples, as a table and as a figure."""
