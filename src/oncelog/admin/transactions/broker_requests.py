"""Sends many requests to many brokers at once, over one connection to each, and reports those without an answer.

A broker answers in order, so a few requests to each are in flight. A broker that fails once gets no further requests in
the same call: the rest are unanswered for that reason. Nothing is retried: callers know which requests may be repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from oncelog.base.ids import TopicPartition, group_by_key
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.connection import Response
from oncelog.client.programs import Cluster, Link, Program, parallel
from oncelog.client.programs.steps import Call
from oncelog.wire.message import Request
from oncelog.wire.message import Response as ResponseMessage

R = TypeVar("R", bound=ResponseMessage)
T = TypeVar("T")

LEADERLESS: Final = "no broker leads it at the moment"
UNDER_WAY: Final = 4
"""Requests in flight to one broker: enough to keep it busy, too few to fill a socket's buffer."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request without an answer; ``broker`` is None if there was no broker to send it to."""

    broker: int | None
    subject: str
    reason: str

    def __str__(self) -> str:
        origin = "" if self.broker is None else f"broker {self.broker}: "
        return f"{origin}{self.subject}: {self.reason}"


@dataclass(frozen=True, slots=True)
class BrokerRequest(Generic[R]):
    """A request for one broker; ``subject`` names it in a report ("producers of 500 partitions"). ``at_most`` is the
    highest version with the intended meaning, if not any."""

    broker: int
    message: Request[R]
    subject: str
    at_most: int | None = None


class Progress(Protocol):
    def __call__(self, done: int, total: int | None) -> None:
        """``done`` of ``total`` are finished."""


def no_progress(done: int, total: int | None) -> None:
    """Ignore progress."""


def send_requests(
    cluster: Cluster, requests: Sequence[BrokerRequest[R]], progress: Progress = no_progress
) -> Program[list[tuple[BrokerRequest[R], R | Unanswered]]]:
    """Send every request. Returns each with its answer, in order. Raises ConfigError for a wrong client setting."""
    return (yield from send_and_read(cluster, requests, Response.decode, progress))


def send_and_read(
    cluster: Cluster,
    requests: Sequence[BrokerRequest[R]],
    read: Callable[[Response[R]], T],
    progress: Progress = no_progress,
) -> Program[list[tuple[BrokerRequest[R], T | Unanswered]]]:
    """Like ``send_requests``, with ``read`` applied to each response; it raises PeerError for unreadable ones."""
    to_send: dict[int, deque[int]] = {}
    for index, request in enumerate(requests):
        to_send.setdefault(request.broker, deque()).append(index)
    answers: list[T | Unanswered | None] = [None] * len(requests)
    done = 0

    def give_up(index: int, queue: deque[int], error: ClientError) -> None:
        # The rest of the broker's requests would fail the same way.
        for failed in (index, *queue):
            answers[failed] = Unanswered(requests[failed].broker, requests[failed].subject, str(error))
        queue.clear()

    def ask_in_turn(link: Link, queue: deque[int]) -> Program[None]:
        nonlocal done
        while queue:
            index = queue.popleft()
            message, at_most = requests[index].message, requests[index].at_most
            try:
                version = None if at_most is None else link.versions.choose(message, at_most)
                answers[index] = yield Call(link, message, version, read=read)
            except ClientError as error:
                give_up(index, queue, error)
            done += 1
            progress(done, len(requests))

    def ask_broker(broker: int, queue: deque[int]) -> Program[None]:
        try:
            link = yield from cluster.link(broker)
        except ClientError as error:
            give_up(queue.popleft(), queue, error)
        else:
            yield from parallel(ask_in_turn(link, queue) for _ in range(min(UNDER_WAY, len(queue))))

    yield from parallel(ask_broker(broker, queue) for broker, queue in to_send.items())
    return [(request, answer) for request, answer in zip(requests, answers, strict=True) if answer is not None]


def slices_of(partitions: Sequence[TopicPartition], size: int) -> Iterable[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), size):
        yield partitions[start : start + size]


def leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[Unanswered]]:
    """Partitions by leader in the client's view; those without one are one Unanswered."""
    led: dict[int, list[TopicPartition]] = {}
    leaderless = []
    for partition in partitions:
        info = cluster.view.partition(partition)
        if info is None or info.leader < 0:
            leaderless.append(partition)
        else:
            led.setdefault(info.leader, []).append(partition)
    return led, [Unanswered(None, _named(leaderless), LEADERLESS)] if leaderless else []


def refusals(codes: Mapping[TopicPartition, int], broker: int) -> list[Unanswered]:
    """Refused partitions grouped by reason: a thousand of them are one line."""
    gathered = group_by_key((code, partition) for partition, code in codes.items())
    return [Unanswered(broker, _named(partitions), explain(code)) for code, partitions in gathered.items()]


def _named(partitions: Sequence[TopicPartition]) -> str:
    names = ", ".join(str(partition) for partition in partitions[:3])
    return names if len(partitions) <= 3 else f"{names} and {len(partitions) - 3} more partitions"
