"""Large requests in parts: decided a thousand items at a time, with other connections' turns in between.

The rule: a part is decided as a request of its own, and the parts' answers are one answer. That is only done where the
items have nothing to do with each other; those that are named alike, which may have, stay in one part. What is decided
as one (the offsets of a commit, the partitions of one transaction, topics to create) is not in the table: what it can
cost is bounded by ``oncelog.wire.message.REQUEST_MAX_ELEMENTS``. Not an API.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicName
from oncelog.core.controller.resources import ConfigResourceType
from oncelog.core.controller.topics import MAX_PARTITIONS_PER_REQUEST
from oncelog.handlers.waits import NextTurn, Steps

if TYPE_CHECKING:
    from oncelog.handlers.context import Context
    from oncelog.wire.message import Message

PART: Final = 1000
"""Items of a part: the dearest cost 20 µs each."""

Handle = Callable[[Any, "Context"], Any]


class _Items(NamedTuple):
    """Where an API's items are."""

    items: str
    """The request's array."""
    answers: str
    """The response's array, to which each part adds."""
    key: Callable[[Any], object]
    """What an item is about."""
    separable: Callable[[Any, Sequence[Any], Context], bool] = lambda request, items, context: True
    """Whether the items of this request have nothing to do with each other."""


def _known_types(request: Any, items: Sequence[Any], context: Context) -> bool:
    """One resource of an unknown type refuses them all."""
    known = set(ConfigResourceType)
    return all(item.resource_type in known for item in items)


def _few_partitions(request: Any, items: Sequence[Any], context: Context) -> bool:
    """Too many partitions in all refuse the request."""
    topics = context.broker.image.topics
    counts = (item.count for item in items if TopicName(item.name) in topics)
    total: int = sum(counts)
    return total <= MAX_PARTITIONS_PER_REQUEST


def _all_by_name_or_all_by_id(request: Any, items: Sequence[Any], context: Context) -> bool:
    """A topic named and another given by id may be the same; one that is neither refuses them all."""
    return len({(item.name is None, item.topic_id == NO_TOPIC_ID) for item in items}) == 1


def _creates_few(request: Any, items: Sequence[Any], context: Context) -> bool:
    """Topics that are created because somebody asks are created in one commit, too many at once are refused."""
    broker = context.broker
    if not _all_by_name_or_all_by_id(request, items, context):
        return False
    if not (request.allow_auto_topic_creation and broker.config.get("auto.create.topics.enable")):
        return True
    return all(item.name in broker.image.topics for item in items)


def _itself(item: object) -> object:
    return item


_RESOURCE: Final = attrgetter("resource_type", "resource_name")
_TOPIC: Final = attrgetter("topic_id", "name")
_SEPARABLE: Final[dict[str, tuple[_Items, ...]]] = {
    "ListOffsets": (_Items("topics", "topics", attrgetter("name")),),
    "Metadata": (_Items("topics", "topics", _TOPIC, _creates_few),),
    "FindCoordinator": (_Items("coordinator_keys", "coordinators", _itself),),
    "DeleteTopics": (
        _Items("topics", "responses", _TOPIC, _all_by_name_or_all_by_id),
        _Items("topic_names", "responses", _itself),
    ),
    "DeleteRecords": (_Items("topics", "topics", attrgetter("name")),),
    "OffsetForLeaderEpoch": (_Items("topics", "topics", attrgetter("topic")),),
    "AddPartitionsToTxn": (_Items("transactions", "results_by_transaction", attrgetter("transactional_id")),),
    # Markers of one producer share a result, but not a thousand of them.
    "WriteTxnMarkers": (_Items("markers", "markers", id),),
    "DescribeConfigs": (_Items("resources", "results", _RESOURCE, _known_types),),
    "AlterConfigs": (_Items("resources", "responses", _RESOURCE),),
    "IncrementalAlterConfigs": (_Items("resources", "responses", _RESOURCE),),
    "CreatePartitions": (_Items("topics", "results", attrgetter("name"), _few_partitions),),
    "ElectLeaders": (_Items("topic_partitions", "replica_election_results", attrgetter("topic")),),
}


def in_turns(api: str, handle: Handle, request: Message, context: Context) -> Steps[Message | None]:
    """Decide a large request: not in the turn in which it was decoded, and in parts where it can be."""
    yield NextTurn()
    for where in _SEPARABLE.get(api, ()):
        items = getattr(request, where.items) or ()
        if len(items) > PART and where.separable(request, items, context):
            return (yield from _in_parts(handle, request, context, where))
    response: Message | None = yield from _decided(handle(request, context))
    return response


def _in_parts(handle: Handle, request: Message, context: Context, where: _Items) -> Steps[Message | None]:
    response: Message | None = None
    for items in _parts(getattr(request, where.items), where.key):
        part = copy(request)
        setattr(part, where.items, items)
        answer = yield from _decided(handle(part, context))
        if response is None:
            response = answer
        else:
            getattr(response, where.answers).extend(getattr(answer, where.answers))
        yield NextTurn()
    return response


def _parts(items: Sequence[Any], key: Callable[[Any], object]) -> Iterator[list[Any]]:
    """Items in their order, but those with the same key together with the first of them."""
    alike: dict[object, list[Any]] = {}
    for item in items:
        alike.setdefault(key(item), []).append(item)
    part: list[Any] = []
    for each in alike.values():
        part += each
        if len(part) >= PART:
            yield part
            part = []
    if part:
        yield part


def _decided(outcome: Any) -> Steps[Any]:
    return (yield from outcome) if isinstance(outcome, Generator) else outcome
