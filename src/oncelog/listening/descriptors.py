"""File descriptors of this process: how many there may be, and which of them connections may take.

The rule: a connection never holds a descriptor numbered ``connection_bound()`` or above. The system hands out the
lowest free number, so this one comparison counts everything that the process has open: the connections of every
listener, files, links to other brokers, whatever an embedding program opened.

1. A process of our own (``raise_limit``) keeps two parts from connections: a share for data files, less what they have
   open already, and a reserve for what a broker opens for a moment: a module that is imported late, a checkpoint, a
   certificate, a connection to another broker.
2. In any other process, which has descriptors of its own, connections may take all but a small reserve. Data files
   close theirs first (``give_way``).

All brokers of a process share the part of data files.
"""

from __future__ import annotations

import contextlib
import resource
from threading import Lock
from typing import Final, Protocol
from weakref import WeakSet

_PLENTY: Final = 1 << 20
"""The limit asked for where the hard one is unlimited. A system that allows fewer refuses, and is asked for fewer."""
_MODEST: Final = 4096
"""From so many on, half of all are enough for connections."""
_LARGEST_RESERVE: Final = 256
_SMALL_RESERVE: Final = 32
_FEWEST_FILES: Final = 16


class FileCache(Protocol):
    """Files that are opened when needed, and may be closed at any time."""

    def open_count(self) -> int:
        """Descriptors open now."""

    def shrink(self, most: int) -> None:
        """Close descriptors until ``most`` are open."""


_CACHES: Final[WeakSet[FileCache]] = WeakSet()
_CACHES_LOCK: Final = Lock()
_is_our_process = False


def raise_limit() -> None:
    """Raise the soft limit to the hard one. For a process of our own: a program that uses ``select`` needs small
    numbers, so a library leaves the limit alone."""
    global _is_our_process
    _is_our_process = True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PLENTY if hard == resource.RLIM_INFINITY else hard
    while wanted > soft != resource.RLIM_INFINITY:
        with contextlib.suppress(ValueError, OSError):  # macOS refuses more than the kernel's own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return
        wanted //= 2


def limit() -> int:
    """Descriptors that this process may have. An embedding program may change its limit at any time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft


def add_cache(cache: FileCache) -> None:
    """Let a cache have its part of the descriptors for data files; the others close what is now above theirs."""
    with _CACHES_LOCK:
        _CACHES.add(cache)
    most = share_of_cache()
    for each in _caches():
        each.shrink(most)


def remove_cache(cache: FileCache) -> None:
    """Leave the part of a cache that has closed its files to the others."""
    with _CACHES_LOCK:
        _CACHES.discard(cache)


def _caches() -> list[FileCache]:
    with _CACHES_LOCK:
        return list(_CACHES)


def _file_share() -> int:
    """Descriptors for data files: half of many, a quarter of few, for connections need the others."""
    most = limit()
    return max(_FEWEST_FILES, min(most // 2 if most >= _MODEST else most // 4, 65536))


def share_of_cache() -> int:
    """The part of each cache in the descriptors for data files."""
    return max(_FEWEST_FILES, _file_share() // max(1, len(_CACHES)))


def give_way() -> bool:
    """In a process that is not ours, close half of the data files for connections. True if some were closed."""
    if _is_our_process:
        return False
    closed = 0
    for cache in _caches():
        before = cache.open_count()
        cache.shrink(before // 2)
        closed += before - cache.open_count()
    return closed > 0


def _reserve() -> int:
    """Descriptors that neither data files nor connections take."""
    return min(_LARGEST_RESERVE if _is_our_process else _SMALL_RESERVE, limit() // 4)


def connection_bound() -> int:
    """The first descriptor number that no connection may have."""
    if not _is_our_process:
        return limit() - _reserve()
    # Open data files have numbers below the bound, too: without them in it, they would lock connections out.
    files_to_come = _file_share() - sum([cache.open_count() for cache in _caches()])
    return limit() - max(0, files_to_come) - _reserve()


def metrics_bound() -> int:
    """The same for the few connections of a metrics port: it stays reachable when clients have taken their share."""
    return connection_bound() + _reserve() // 4
