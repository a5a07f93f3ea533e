"""The checksum of batches: CRC-32C's test vectors, and the ways to the function."""

from __future__ import annotations

import importlib
from importlib.machinery import PathFinder

import crc32c as package
import pytest

from oncelog.records import checksum


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)]
)
def test_it_is_the_castagnoli_polynomials(data: bytes, expected: int) -> None:
    """The vectors of RFC 3720, B.4."""
    assert checksum.crc32c(data) == expected
    assert checksum.crc32c(memoryview(data)[4:], checksum.crc32c(data[:4])) == expected


def test_a_package_without_the_compiled_module_is_imported_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec
    with monkeypatch.context() as patched:
        patched.setattr(PathFinder, "find_spec", lambda name, *path: None if name == "_crc32c" else find(name, *path))
        assert importlib.reload(checksum).crc32c is package.crc32c
    assert importlib.reload(checksum).crc32c(b"123456789") == 0xE3069283
