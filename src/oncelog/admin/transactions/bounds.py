"""How far the records of partitions may be read: last stable offset and high watermark (ListOffsets, both isolations).

The rule: a partition that cannot be asked is left out, and reported; the others are answered all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.asking import Question, Unanswered, ask, leaders, refusals
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import LATEST, Client
from oncelog.client.machine.requests import list_offsets_request
from oncelog.wire.messages.list_offsets import ListOffsetsResponse

_PAUSE_MS: Final = 20
_LONGEST_PAUSE_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Bounds:
    """``last_stable_offset``: where readers of committed records stop. ``end_offset``: the high watermark."""

    last_stable_offset: int
    end_offset: int

    @property
    def held(self) -> int:
        """Offsets that a reader of committed records may not see yet."""
        return max(0, self.end_offset - self.last_stable_offset)


def bounds_of(
    client: Client, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, Bounds], list[Unanswered]]:
    """Bounds of partitions that the client's view has. The stable offset is asked first: it never seems ahead."""
    wanted = list(dict.fromkeys(partitions))
    led, unanswered = leaders(client, wanted)
    questions, isolations = [], []
    for broker, part in led.items():
        for committed in (True, False):
            message = list_offsets_request(client.view, dict.fromkeys(part, LATEST), part, committed)
            questions.append(Question(broker, message, f"offsets of {len(part)} partitions"))
            isolations.append(committed)
    found: dict[bool, dict[TopicPartition, int]] = {True: {}, False: {}}
    for (question, answer), committed in zip(ask(client, questions), isolations, strict=True):
        if isinstance(answer, Unanswered):
            unanswered.append(answer)
        else:
            unanswered += refusals(_take(answer, found[committed]), question.broker)
    both = {
        one: Bounds(found[True][one], found[False][one]) for one in wanted if one in found[True] and one in found[False]
    }
    return both, list(dict.fromkeys(unanswered))


def _take(answer: ListOffsetsResponse, found: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    refused = {}
    for topic in answer.topics:
        for one in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), one.partition_index)
            if one.error_code:
                refused[partition] = one.error_code
            else:
                found[partition] = one.offset
    return refused


def wait_for(
    client: Client, partition: TopicPartition, until: Callable[[Bounds], bool], timeout_ms: int
) -> Bounds | None:
    """A partition's bounds once ``until`` holds of them, or as they are when the time is up; None if unanswered."""
    deadline = client.system.now_ms() + timeout_ms
    pause_ms = _PAUSE_MS
    while True:
        bounds = bounds_of(client, [partition])[0].get(partition)
        if (bounds is not None and until(bounds)) or client.system.now_ms() >= deadline:
            return bounds
        client.system.sleep(pause_ms)
        pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)
