"""File descriptors of this process: how many there may be, and which of them connections may take.

The rule: a connection never holds a descriptor numbered ``connection_bound()`` or above. The system hands out the
lowest free number, so this one comparison counts everything that the process has open: the connections of every
listener, files, links to other brokers, whatever an embedding program opened. The numbers from the bound on are left
for data files (``file_share``) and for what a broker opens for a moment: a module that is imported late, a checkpoint,
a certificate, a connection to another broker.
"""

from __future__ import annotations

import contextlib
import resource
from functools import cache
from typing import Final

_PLENTY: Final = 1 << 20
"""The limit asked for where the hard one is unlimited. A system that allows fewer refuses, and is asked for fewer."""
_MODEST: Final = 4096
"""From so many on, half of all are enough for connections."""
_LARGEST_RESERVE: Final = 256


def raise_limit() -> None:
    """Raise the soft limit to the hard one. For a process of our own: a program that uses ``select`` needs small
    numbers, so a library leaves the limit alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit.cache_clear()
    wanted = _PLENTY if hard == resource.RLIM_INFINITY else hard
    while wanted > soft != resource.RLIM_INFINITY:
        with contextlib.suppress(ValueError, OSError):  # macOS refuses more than the kernel's own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return
        wanted //= 2


@cache
def limit() -> int:
    """Descriptors that this process may have, as far as it knows: asking for each connection takes a while."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft


def file_share() -> int:
    """Descriptors for data files: half of many, a quarter of few, for connections need the others."""
    most = limit()
    return max(16, min(most // 2 if most >= _MODEST else most // 4, 65536))


def reserve() -> int:
    """Descriptors that neither data files nor connections take."""
    return min(_LARGEST_RESERVE, limit() // 4)


def connection_bound() -> int:
    """The first descriptor number that no connection may have."""
    return limit() - file_share() - reserve()


def metrics_bound() -> int:
    """The same for the few connections of a metrics port: it stays reachable when clients have taken their share."""
    return connection_bound() + reserve() // 4
