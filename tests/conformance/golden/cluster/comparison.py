"""A conversation that was recorded beside the same one held again: one line for every difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.conformance.golden.compare import Translation, comparable_batches
from tests.conformance.golden.replay import Asked, answers_differ, decode_request, decode_response, named
from tests.peers.recorder import Direction, Event
from tests.wire_structs import is_struct

_OF_INTERNAL_TOPICS: Final = re.compile(
    r"^\w+ v\d+: [^:]*(\[__\w+\]\S*leader_epoch|coordinator_epoch): \d+, Apache Kafka \d+;"
)
"""How often their leaders were elected before the conversation began: Apache Kafka draws lots for who is the first."""


def compared(recorded: Sequence[Event], ours: Sequence[Event]) -> Iterator[str]:
    """The differences between what Apache Kafka answered and what we did. Raises ValueError where something else is
    asked than was recorded: the recording is older than the conversation."""
    translation = Translation()
    requests: dict[int, Asked | None] = {}
    for number, (theirs, mine) in enumerate(zip(recorded, ours, strict=False)):
        text = f"event {number} at broker {mine.connection}"
        if theirs.connection != mine.connection or _is_request(theirs) != _is_request(mine):
            raise ValueError(f"{text}: the conversation is not the recorded one; record it anew")
        if _is_request(theirs):
            requests[mine.connection] = question = decode_request(mine.frame)
            if _rewritten(theirs.frame, translation) != _rewritten(mine.frame, None):
                raise ValueError(f"{text}: {named(question)} asks for something else than was recorded; record it anew")
            continue
        question = requests.pop(mine.connection)
        if theirs.direction is not mine.direction:
            closing = "ours" if mine.direction is Direction.CLOSED_BY_BROKER else "Apache Kafka"
            yield f"event {number}: {named(question)}: {closing} closes the connection"
        elif theirs.direction is Direction.RESPONSE:
            for line in answers_differ(question, theirs.frame, mine.frame, translation, set()):
                if not _OF_INTERNAL_TOPICS.search(line):
                    yield f"event {number}: {line} (broker {mine.connection})"
            if question is not None:
                texts = [sorted(_texts(decode_response(item.frame, question))) for item in (theirs, mine)]
                if texts[0] != texts[1]:
                    yield f"event {number}: {named(question)}: error_message: {texts[1]}, Apache Kafka {texts[0]}"
    if len(recorded) != len(ours):
        raise ValueError(f"{len(ours)} events, {len(recorded)} recorded: the conversation is not the recorded one")


def _texts(message: Any) -> Iterator[str]:
    """The error messages of an answer: in a cluster they are Apache Kafka's to the letter."""
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_message":
            yield value or ""
        elif isinstance(value, list):
            for element in filter(is_struct, value):
                yield from _texts(element)


def _is_request(event: Event) -> bool:
    return event.direction is Direction.REQUEST


def _rewritten(frame: bytes, translation: Translation | None) -> Any:
    """A request to be compared with another one; with our ids in it if it was recorded."""
    request = decode_request(frame)
    if request is None:
        return frame
    if translation is not None:
        translation.rewrite(request.message)
    if request.name == "Produce":
        for data in (data for topic in request.message.topic_data for data in topic.partition_data):
            data.records = comparable_batches(data.records, translation)
    return request
