"""Where snapshots are kept: one small contract, one file a store."""

from .background import Background
from .codecs import register_codec
from .compressed import Compressed
from .conformance import conformance
from .contract import Key, Store
from .disk import Disk
from .hdf5 import HDF5
from .host import Host
from .memory import Memory
from .mock import Mock
from .orphans import Orphan, clean, orphans
from .remote import Remote
from .zarr import Zarr

__all__ = [
    "HDF5",
    "Background",
    "Compressed",
    "Disk",
    "Host",
    "Key",
    "Memory",
    "Mock",
    "Orphan",
    "Remote",
    "Store",
    "Zarr",
    "clean",
    "conformance",
    "orphans",
    "register_codec",
]
