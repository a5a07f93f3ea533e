"""Programs: a client's operations, written once for blocking sockets and for asyncio.

A program is a generator. It yields a step, is resumed with the step's result, and returns its own result. A failed step
raises at its ``yield``. Programs call each other with ``yield from``.

1. A program does no I/O and reads no clock. ``blocking.driver`` and ``aio.driver`` carry out its steps; time comes from
   ``Environment``.
2. A driver closes a program that it abandons (an interrupt, a cancelled task): GeneratorExit is raised at its
   ``yield``. The program may clean up, and must not yield again.
3. Nothing else runs between two steps. During a step other programs of the same client may: values may have changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from oncelog.client.addresses import Address
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.connection import ExpectedBroker, Response
from oncelog.client.machine.versions import Versions
from oncelog.wire.message import Request
from oncelog.wire.message import Response as ResponseMessage

R = TypeVar("R", bound=ResponseMessage)
T = TypeVar("T")


class Link(Protocol):
    """A connection to one broker, of either driver."""

    @property
    def address(self) -> Address:
        """The broker's address."""

    @property
    def is_open(self) -> bool:
        """True while requests can be sent."""

    @property
    def versions(self) -> Versions:
        """The API versions and features that the broker announced."""

    def abort(self) -> None:
        """Close the link at once; calls in flight fail with ConnectionLost."""


class Lock(Protocol):
    """Mutual exclusion between the programs of one client."""

    def release(self) -> None:
        """Let the next program have it."""


class Environment(Protocol):
    """Time, chance and locks, as the driver has them."""

    def now_ms(self) -> int:
        """Milliseconds of a clock that only goes forward, for time-outs."""

    def now_us(self) -> int:
        """The same clock in microseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def jitter(self, least: int, most: int) -> int:
        """A random number in [least, most]."""

    def lock(self) -> Lock:
        """A new lock, for ``Acquire``."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open an authenticated Link, within ``timeout_ms`` if that is less than the client's own limit.

    Raises NoBrokerReachable, RequestTimedOut if the broker says nothing, AuthenticationFailed, ConfigError,
    RebootstrapRequired.
    """

    address: Address
    expected: ExpectedBroker | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request; the result is ``read`` of its response. Not retried.

    Raises ConnectionLost, RequestTimedOut (the link is closed then), UnsupportedRequest.
    """

    link: Link
    message: Request[Any]
    version: int | None = None
    timeout_ms: int | None = None
    read: Callable[[Response[Any]], Any] = Response.decode


@dataclass(frozen=True, slots=True)
class Sleep:
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """Wait for a lock. Call its ``release`` in a ``finally``."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Parallel:
    """Run programs side by side until all have ended. Returns their results, or raises the first error, in their
    order."""

    programs: Sequence[Program[Any]]


class Pending(Protocol):
    """A request that was sent and is not waited for."""

    @property
    def is_done(self) -> bool:
        """True if it was answered or has failed."""

    def result(self) -> Any:
        """The response. Raises ConnectionLost, RequestTimedOut; to be called once it is done."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Send a request without waiting; the result is a Pending. Raises ConnectionLost, UnsupportedRequest."""

    link: Link
    message: Request[Any]
    version: int
    timeout_ms: int
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until one of some requests is done, or the time is up."""

    pending: Sequence[Pending]
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for an awaitable of asyncio, in programs for its driver alone."""

    awaitable: Awaitable[Any]


Step = Connect | Call | Submit | Wait | Sleep | Acquire | Parallel | Await
Program = Generator[Step, Any, T]


def call(link: Link, message: Request[R], version: int | None = None, timeout_ms: int | None = None) -> Program[R]:
    """Send a request over a link. Returns its response, whatever error codes it has."""
    response: R = yield Call(link, message, version, timeout_ms)
    return response


class HasErrorCode(Protocol):
    """A response, or a part of one."""

    error_code: int


def raise_for_error(answer: HasErrorCode, subject: str) -> None:
    """Raise BrokerRefused if an answer has an error code, with the broker's own message if it sent one."""
    if answer.error_code:
        raise BrokerRefused(answer.error_code, subject, getattr(answer, "error_message", None))


def parallel(programs: Iterable[Program[T]]) -> Program[list[T]]:
    """The results of programs that run in parallel; see ``Parallel``."""
    several = list(programs)
    if len(several) == 1:
        return [(yield from several[0])]
    results: list[T] = yield Parallel(several)
    return results
