"""Shares the process's file descriptors between connections, data files and other uses.

The rule: a connection never holds a descriptor numbered ``connection_bound()`` or above. The system assigns the lowest
free number, so this one comparison accounts for all open descriptors of the process.

1. A process of our own (``raise_limit``) keeps from connections a share for data files, less those open already, and a
   reserve for short-lived uses (docs/internals/hostile-input.md).
2. In any other process, connections may take all but a small reserve, and data files close theirs first (``give_way``).

All brokers of a process share the data files' part.
"""

from __future__ import annotations

import contextlib
import resource
from threading import Lock
from typing import Final, Protocol
from weakref import WeakSet

# The limit requested if the hard limit is unlimited; a system that refuses it is asked for half, and so on.
_PLENTY: Final = 1 << 20
# Limit from which half of the descriptors suffice for connections.
_MODEST: Final = 4096
_LARGEST_RESERVE: Final = 256
_SMALL_RESERVE: Final = 32
_FEWEST_FILES: Final = 16


class FileCache(Protocol):
    """Files that are opened on demand and may be closed at any time."""

    def open_count(self) -> int: ...

    def shrink(self, most: int) -> None: ...


_CACHES: Final[WeakSet[FileCache]] = WeakSet()
_CACHES_LOCK: Final = Lock()
_is_our_process = False


def raise_limit() -> None:
    """Raise the soft limit to the hard one, in a process of our own. A library must not: embedding programs that use
    ``select`` need small descriptor numbers."""
    global _is_our_process
    _is_our_process = True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _PLENTY if hard == resource.RLIM_INFINITY else hard
    while target > soft != resource.RLIM_INFINITY:
        with contextlib.suppress(ValueError, OSError):  # macOS refuses more than the kernel's own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            return
        target //= 2


def limit() -> int:
    """The descriptor limit of this process. An embedding program may change it at any time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft


def add_cache(cache: FileCache) -> None:
    """Give a cache its share of the data files' descriptors; the others shrink to their new share."""
    with _CACHES_LOCK:
        _CACHES.add(cache)
    share = share_of_cache()
    for other_cache in _caches():
        other_cache.shrink(share)


def remove_cache(cache: FileCache) -> None:
    """Return the share of a cache that has closed its files."""
    with _CACHES_LOCK:
        _CACHES.discard(cache)


def _caches() -> list[FileCache]:
    with _CACHES_LOCK:
        return list(_CACHES)


def _file_share() -> int:
    """Descriptors for data files: half of a large limit, a quarter of a small one."""
    total = limit()
    return max(_FEWEST_FILES, min(total // 2 if total >= _MODEST else total // 4, 65536))


def share_of_cache() -> int:
    return max(_FEWEST_FILES, _file_share() // max(1, len(_CACHES)))


def give_way() -> bool:
    """In a foreign process, close half of the data files to make room for connections. True if some were closed."""
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
    # Open data files have numbers below the bound, too: reserving their share again would lock connections out.
    files_to_come = _file_share() - sum([cache.open_count() for cache in _caches()])
    return limit() - max(0, files_to_come) - _reserve()


def metrics_bound() -> int:
    """The bound for the few connections of a metrics port, which stays reachable when clients have taken their
    share."""
    return connection_bound() + _reserve() // 4
