"""Files that travel: the folder that receives them, and their size on the wire.

No socket here.
"""
