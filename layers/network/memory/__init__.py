"""How much memory incoming messages may take: the budget of one end, and what the machine has.

No socket, thread or message comes in, and nothing of the other rooms of the network.
"""
