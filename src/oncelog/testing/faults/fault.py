"""A fault: its requests, its hits, and its end. Its methods may be called from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from oncelog.testing.faults.matching import Match

if TYPE_CHECKING:
    from oncelog.base.errors import ErrorCode

WAIT_S: Final = 10.0


@dataclass(frozen=True)
class Hit:
    """A request hit by a fault."""

    api: str
    client_id: str | None
    transactional_id: str | None = None


class Fault:
    """An active fault, until :meth:`remove` or the end of its ``with`` block. See ``broker.faults``."""

    def __init__(self, description: str, heal: Callable[[Fault], None]) -> None:
        self.description = description
        """The fault in words."""
        self._heal = heal
        self._changed = threading.Condition()
        self._hits: list[Hit] = []
        self._removed = threading.Event()

    @property
    def hits(self) -> list[Hit]:
        """The requests that the fault has hit, in order."""
        with self._changed:
            return list(self._hits)

    @property
    def hit(self) -> bool:
        return bool(self._hits)

    @property
    def removed(self) -> bool:
        return self._removed.is_set()

    def wait(self, timeout_s: float = WAIT_S, *, hits: int = 1) -> Self:
        """Wait until the fault has hit ``hits`` requests. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._hits) >= hits, timeout_s):
                raise TimeoutError(f"{self.description}: struck {len(self._hits)} times in {timeout_s:g} s, not {hits}")
        return self

    def remove(self) -> None:
        """End the fault: held requests continue, later ones are spared. A second call does nothing."""
        if not self._removed.is_set():
            self._removed.set()
            self._heal(self)

    def struck(self, hit: Hit) -> None:
        with self._changed:
            self._hits.append(hit)
            self._changed.notify_all()

    def until_removed(self, timeout_s: float | None) -> None:
        self._removed.wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{self.description}: {len(self._hits)} hits{', removed' if self.removed else ''}>"


@dataclass
class RequestFault:
    """The effect of a fault on matching requests. For the broker's loop only."""

    fault: Fault
    match: Match
    after: bool
    """True: hit a request after it has taken effect and before its response leaves; False: before it takes effect."""
    skip: int = 0
    """Number of requests still to spare."""
    times: int | None = None
    """Number of requests still to hit; None: all."""
    delay_ms: int | None = None
    """How long to hold the request; None: not at all."""
    kill: bool = False
    drop: bool = False
    error: ErrorCode | None = None

    def strikes(self) -> bool:
        """Count a matching request. Returns True if the fault hits it."""
        if self.fault.removed or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True
