"""Connections that may be closed to make room for others, grouped by source.

The rule: when a limit is reached, the oldest connection of the source that has the most is closed, so a peer that opens
thousands of connections displaces its own.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

C = TypeVar("C")


@lru_cache(1024)
def source_of(host: str) -> str:
    """The source that an address counts towards: an IPv4 address itself, or the /64 of an IPv6 address, since one host
    may use all of it."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))


class Waiting(Generic[C]):
    """In order of arrival, by source."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[C, None]] = {}
        self._sources: dict[C, str] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, connection: object) -> bool:
        return connection in self._sources

    def add(self, connection: C, source: str) -> None:
        self.discard(connection)
        self._sources[connection] = source
        self._by_source.setdefault(source, {})[connection] = None

    def discard(self, connection: C) -> None:
        source = self._sources.pop(connection, None)
        if source is None:
            return
        same = self._by_source[source]
        del same[connection]
        if not same:
            del self._by_source[source]

    def count_of(self, source: str) -> int:
        return len(self._by_source.get(source, ()))

    def newest_of_most(self) -> C | None:
        """The newest connection of the source that has the most; None if there are no connections."""
        if not self._by_source:
            return None
        return next(reversed(self._by_source[max(self._by_source, key=self.count_of)]))

    def next_to_displace(self) -> C | None:
        """The oldest connection of the source that has the most; None if there are no connections."""
        if not self._by_source:
            return None
        return next(iter(self._by_source[max(self._by_source, key=self.count_of)]))
