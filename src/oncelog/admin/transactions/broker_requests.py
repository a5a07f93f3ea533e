"""Many requests to many brokers at once, over one connection to each; whoever does not answer is reported.

The rule: requests to one broker are answered in their order, so a few are kept under way to each and the answers are
taken as they come. A broker that fails once is not asked again in the same call: the rest of its requests are
unanswered for the same reason. Nothing is retried here; the callers know what may be asked twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from oncelog.base.ids import TopicPartition
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
"""Requests to one broker that are not answered yet: enough to keep it busy, too few to fill a socket's buffer."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question that got no answer: ``broker`` is None where there is none to ask."""

    broker: int | None
    what: str
    reason: str

    def __str__(self) -> str:
        who = "" if self.broker is None else f"broker {self.broker}: "
        return f"{who}{self.what}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Question(Generic[R]):
    """A request for one broker; ``what`` names it in a report, as in "producers of 500 partitions".

    ``at_most`` is the highest version that says what is meant; None for the highest there is.
    """

    broker: int
    message: Request[R]
    what: str
    at_most: int | None = None


class Progress(Protocol):
    """Called again and again during long work, with how far it is."""

    def __call__(self, done: int, total: int | None) -> None:
        """``done`` of ``total`` are finished."""


def no_progress(done: int, total: int | None) -> None:
    """Progress that nobody follows."""


def ask(
    cluster: Cluster, questions: Sequence[Question[R]], progress: Progress = no_progress
) -> Program[list[tuple[Question[R], R | Unanswered]]]:
    """Every question with its answer, in the order asked. Raises ConfigError for a wrong setting of the client."""
    return (yield from ask_and_read(cluster, questions, Response.decode, progress))


def ask_and_read(
    cluster: Cluster,
    questions: Sequence[Question[R]],
    read: Callable[[Response[R]], T],
    progress: Progress = no_progress,
) -> Program[list[tuple[Question[R], T | Unanswered]]]:
    """Every question with what ``read`` makes of its answer, which raises PeerError for what cannot be read."""
    to_send: dict[int, deque[int]] = {}
    for index, question in enumerate(questions):
        to_send.setdefault(question.broker, deque()).append(index)
    answers: list[T | Unanswered | None] = [None] * len(questions)
    done = 0

    def give_up(index: int, queue: deque[int], error: ClientError) -> None:
        for failed in (index, *queue):
            answers[failed] = Unanswered(questions[failed].broker, questions[failed].what, str(error))
        queue.clear()

    def ask_in_turn(link: Link, queue: deque[int]) -> Program[None]:
        nonlocal done
        while queue:
            index = queue.popleft()
            message, at_most = questions[index].message, questions[index].at_most
            try:
                version = None if at_most is None else link.versions.choose(message, at_most)
                answers[index] = yield Call(link, message, version, read=read)
            except ClientError as error:
                give_up(index, queue, error)
            done += 1
            progress(done, len(questions))

    def ask_broker(broker: int, queue: deque[int]) -> Program[None]:
        try:
            link = yield from cluster.link(broker)
        except ClientError as error:
            give_up(queue.popleft(), queue, error)
        else:
            yield from parallel(ask_in_turn(link, queue) for _ in range(min(UNDER_WAY, len(queue))))

    yield from parallel(ask_broker(broker, queue) for broker, queue in to_send.items())
    return [(question, answer) for question, answer in zip(questions, answers, strict=True) if answer is not None]


def slices_of(partitions: Sequence[TopicPartition], size: int) -> Iterable[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), size):
        yield partitions[start : start + size]


def leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[Unanswered]]:
    """Partitions by the broker that leads them, as the client's view has it; those without a leader as one answer."""
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
    """Partitions that were refused, gathered by the reason so that a thousand of them are one line."""
    gathered: dict[int, list[TopicPartition]] = {}
    for partition, code in codes.items():
        gathered.setdefault(code, []).append(partition)
    return [Unanswered(broker, _named(partitions), explain(code)) for code, partitions in gathered.items()]


def _named(partitions: Sequence[TopicPartition]) -> str:
    names = ", ".join(str(partition) for partition in partitions[:3])
    return names if len(partitions) <= 3 else f"{names} and {len(partitions) - 3} more partitions"
