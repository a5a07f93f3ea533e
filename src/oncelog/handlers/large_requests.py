"""Splits large requests into parts of a thousand items, with other connections' requests in between. Not an API.

A part is decided as a request of its own; their answers are merged. A topic with thousands of partitions is split too;
items with the same key stay together. APIs that decide atomically (offsets of a commit, partitions of one transaction,
topics to create) are not in the table: ``oncelog.wire.message.REQUEST_MAX_ELEMENTS`` bounds their cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicName, group_by_key
from oncelog.core.controller.resources import ConfigResourceType
from oncelog.core.controller.topics.changes import MAX_PARTITIONS_PER_REQUEST
from oncelog.handlers.broker.time_slices import items_per_slice
from oncelog.handlers.broker.waits import NextSlice, Steps

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.wire.message import Message

Handle = Callable[[Any, "Context"], "Steps[Message | None]"]


class _Inner(NamedTuple):
    """The array by which an item can be split: a topic's partitions. Topics with the same key may be merged into the
    first.
    """

    items: str
    answers: str
    key: Callable[[Any], object]
    """The part of an element's key within its item."""


class _Items(NamedTuple):
    """The arrays of an API's request and response by which it is split."""

    items: str
    """The request's array."""
    answers: str
    """The response's array, to which each part adds."""
    key: Callable[[Any], object]
    """The key of an item: equal for items that concern the same thing."""
    separable: Callable[[Any, Sequence[Any], Context], bool] = lambda request, items, context: True
    """True if the items of this request are independent."""
    inner: _Inner | None = None
    """The array by which an item can be split."""
    within: str = ""
    """An array of an item that is decided as a whole, but counts as work."""

    def weight(self, item: Any) -> int:
        array = self.inner.items if self.inner is not None else self.within
        return 1 + len(getattr(item, array) or ()) if array else 1


def _known_types(request: Any, items: Sequence[Any], context: Context) -> bool:
    """True if no resource has an unknown type, which refuses them all."""
    types = set(ConfigResourceType)
    return all(item.resource_type in types for item in items)


def _few_partitions(request: Any, items: Sequence[Any], context: Context) -> bool:
    """False if there are too many partitions in all, which refuses the request."""
    topics = context.cluster.image.topics
    counts = (item.count for item in items if TopicName(item.name) in topics)
    total: int = sum(counts)
    return total <= MAX_PARTITIONS_PER_REQUEST


def _all_by_name_or_all_by_id(request: Any, items: Sequence[Any], context: Context) -> bool:
    """False if names and ids are mixed: they may mean the same topic, and a topic with neither refuses them all."""
    return len({(item.name is None, item.topic_id == NO_TOPIC_ID) for item in items}) == 1


def _creates_few(request: Any, items: Sequence[Any], context: Context) -> bool:
    """False if topics would be created automatically: that happens in one commit, and too many are refused."""
    cluster = context.cluster
    if not _all_by_name_or_all_by_id(request, items, context):
        return False
    if not (request.allow_auto_topic_creation and cluster.config.get("auto.create.topics.enable")):
        return True
    return all(item.name in cluster.image.topics for item in items)


def _itself(item: object) -> object:
    return item


_RESOURCE: Final = attrgetter("resource_type", "resource_name")
_TOPIC: Final = attrgetter("topic_id", "name")
_PARTITIONS: Final = _Inner("partitions", "partitions", attrgetter("partition_index"))
_SEPARABLE: Final[dict[str, tuple[_Items, ...]]] = {
    "ListOffsets": (_Items("topics", "topics", attrgetter("name"), inner=_PARTITIONS),),
    "Metadata": (_Items("topics", "topics", _TOPIC, _creates_few),),
    "FindCoordinator": (_Items("coordinator_keys", "coordinators", _itself),),
    "DeleteTopics": (
        _Items("topics", "responses", _TOPIC, _all_by_name_or_all_by_id),
        _Items("topic_names", "responses", _itself),
    ),
    "DeleteRecords": (_Items("topics", "topics", attrgetter("name"), inner=_PARTITIONS),),
    "OffsetForLeaderEpoch": (_Items("topics", "topics", id, inner=_Inner("partitions", "partitions", id)),),
    "AddPartitionsToTxn": (
        _Items("transactions", "results_by_transaction", attrgetter("transactional_id"), within="topics"),
    ),
    "DescribeTransactions": (_Items("transactional_ids", "transaction_states", _itself),),
    "DescribeConfigs": (_Items("resources", "results", _RESOURCE, _known_types, within="configuration_keys"),),
    "AlterConfigs": (_Items("resources", "responses", _RESOURCE, within="configs"),),
    "IncrementalAlterConfigs": (_Items("resources", "responses", _RESOURCE, within="configs"),),
    "CreatePartitions": (_Items("topics", "results", attrgetter("name"), _few_partitions, within="assignments"),),
    "AlterPartitionReassignments": (_Items("topics", "responses", id, inner=_Inner("partitions", "partitions", id)),),
    "ElectLeaders": (
        _Items(
            "topic_partitions",
            "replica_election_results",
            attrgetter("topic"),
            inner=_Inner("partitions", "partition_result", _itself),
        ),
    ),
}


def in_slices(api: str, handle: Handle, request: Message, context: Context) -> Steps[Message | None]:
    """Decide a large request in another slice than its decoding, and in parts if it can be split."""
    yield NextSlice()
    for arrays in _SEPARABLE.get(api, ()):
        items = getattr(request, arrays.items) or ()
        size = items_per_slice(context.partitions)
        if sum(map(arrays.weight, items)) > size and arrays.separable(request, items, context):
            return (yield from _in_parts(handle, request, context, arrays, size))
    return (yield from handle(request, context))


def _in_parts(handle: Handle, request: Message, context: Context, arrays: _Items, size: int) -> Steps[Message | None]:
    response: Message | None = None
    for continues, items in _parts(getattr(request, arrays.items), arrays, size):
        part = copy(request)
        setattr(part, arrays.items, items)
        answer = yield from handle(part, context)
        if response is None:
            response = answer
        else:
            _add(getattr(response, arrays.answers), getattr(answer, arrays.answers), arrays, continues=continues)
        yield NextSlice()
    return response


def _add(answers: list[Any], more: list[Any], arrays: _Items, *, continues: bool) -> None:
    """Merge the answers of one more part; ``continues``: its first answer extends the last one so far."""
    if continues and arrays.inner is not None and answers and more:
        getattr(answers[-1], arrays.inner.answers).extend(getattr(more[0], arrays.inner.answers))
        more = more[1:]
    answers.extend(more)


def _parts(items: Sequence[Any], arrays: _Items, size: int) -> Iterator[tuple[bool, list[Any]]]:
    """Split items into parts, in order, with items of the same key beside the first. Yields with each part whether its
    first item continues the last of the part before.
    """
    part: list[Any] = []
    weight, part_continues = 0, False
    for continues, pieces in _pieces(items, arrays, size):
        if weight >= size:
            yield part_continues, part
            part, weight = [], 0
        if not part:
            part_continues = continues
        part += pieces
        weight += sum(map(arrays.weight, pieces))
    if part:
        yield part_continues, part


def _pieces(items: Sequence[Any], arrays: _Items, size: int) -> Iterator[tuple[bool, list[Any]]]:
    """Items that must stay in one part: those of one key, or a slice of a too large item."""
    inner = arrays.inner
    for same_key in _by_key(items, arrays.key):
        if inner is None or sum(map(arrays.weight, same_key)) <= size:
            yield False, same_key
            continue
        elements = [element for item in same_key for element in getattr(item, inner.items)]
        continues, chunk = False, list[Any]()
        for same_element in _by_key(elements, inner.key):
            if len(chunk) >= size:
                yield continues, [_with(same_key[0], inner.items, chunk)]
                # A continuation follows a full part, so it comes first in its own.
                continues, chunk = True, []
            chunk += same_element
        yield continues, [_with(same_key[0], inner.items, chunk)]


def _with(item: Any, name: str, value: object) -> Any:
    changed = copy(item)
    setattr(changed, name, value)
    return changed


def _by_key(items: Sequence[Any], key: Callable[[Any], object]) -> Iterable[list[Any]]:
    groups = group_by_key((key(item), item) for item in items)
    return groups.values()
