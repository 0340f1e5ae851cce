"""A run in one file: `pack` makes it, `verify` runs it again and says whether it is real.

A pack is made of a run folder and runs as one; what a run is, and how it is run again, comes from
elsewhere. Nothing here trusts a pack: what it names runs only with permission.
"""

from fedmx.pack.errors import PackError
from fedmx.pack.pack_file import PackFile
from fedmx.pack.packing import pack
from fedmx.pack.verification import Verification, verify

__all__ = ["PackError", "PackFile", "Verification", "pack", "verify"]
