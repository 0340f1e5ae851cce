"""The three layers of fedmx: network, logic, compute. They import nothing of each other."""
