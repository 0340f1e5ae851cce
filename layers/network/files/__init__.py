"""Files that are sent and received: how they lie on disk, and their size on the wire.

No socket comes in.
"""
