"""What writes generated files of the project; it is not installed."""
