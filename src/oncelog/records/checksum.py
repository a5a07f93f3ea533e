"""CRC-32C (Castagnoli), the checksum of record batches, from the ``crc32c`` package's compiled module."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final

Buffer = bytes | bytearray | memoryview
Crc32c = Callable[..., int]


# The package's own ``__init__`` looks up its version, which imports importlib.metadata with the e-mail parser and
# archive readers: 2 MB, and more time than all of ``records``. So the compiled module is loaded alone, if there is one.
def _load() -> Crc32c:
    package = PathFinder.find_spec("crc32c")
    compiled = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        import crc32c

        return crc32c.crc32c
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    function: Crc32c = module.crc32c
    return function


crc32c: Final[Crc32c] = _load()
"""``crc32c(data, crc=0)``: the checksum of ``data`` after bytes with the checksum ``crc``."""
