"""CRC-32C, the checksum of record batches (Castagnoli), from the ``crc32c`` package's compiled module.

Why not ``from crc32c import crc32c``: that package looks its own version up on import, which loads importlib.metadata
with the e-mail parser and the archive readers: 2 MB and more time than all of ``records``. The compiled module needs
nothing of it, so it is loaded alone; a package built otherwise is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final

Buffer = bytes | bytearray | memoryview
Crc32c = Callable[..., int]


def _load() -> Crc32c:
    package = PathFinder.find_spec("crc32c")
    compiled = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        import crc32c

        return crc32c.crc32c
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    found: Crc32c = module.crc32c
    return found


crc32c: Final[Crc32c] = _load()
"""``crc32c(data, crc=0)``: the checksum of ``data`` appended to what ``crc`` is the checksum of."""
