"""Large requests in parts: decided a thousand items at a time, with other connections' turns in between.

The rule: a part is decided as a request of its own, and the parts' answers are one answer. That is only done where the
items have nothing to do with each other; those that are named alike, which may have, stay in one part. A topic with
thousands of partitions is cut up too, and its answers become one again. What is decided as one (the offsets of a
commit, the partitions of one transaction, topics to create) is not in the table: what it can cost is bounded by
``oncelog.wire.message.REQUEST_MAX_ELEMENTS``. Not an API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicName
from oncelog.core.controller.resources import ConfigResourceType
from oncelog.core.controller.topics.changes import MAX_PARTITIONS_PER_REQUEST
from oncelog.handlers.broker.time_slices import items_per_slice
from oncelog.handlers.broker.waits import NextSlice, Steps

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.wire.message import Message

Handle = Callable[[Any, "Context"], "Steps[Message | None]"]


class _Inner(NamedTuple):
    """The array inside an item that can be cut up: the partitions of a topic. Topics named alike may be merged into
    the first."""

    items: str
    answers: str
    key: Callable[[Any], object]
    """The part of an item's key within its topic."""


class _Items(NamedTuple):
    """The arrays of an API's request and response that can be cut up."""

    items: str
    """The request's array."""
    answers: str
    """The response's array, to which each part adds."""
    key: Callable[[Any], object]
    """The key of an item: equal where two items concern the same thing."""
    separable: Callable[[Any, Sequence[Any], Context], bool] = lambda request, items, context: True
    """True if the items of this request have nothing to do with each other."""
    inner: _Inner | None = None
    """The array by which an item can be cut up."""
    within: str = ""
    """An array of an item that is decided with it, but is work."""

    def weight(self, item: Any) -> int:
        """The work that an item is, in items."""
        array = self.inner.items if self.inner is not None else self.within
        return 1 + len(getattr(item, array) or ()) if array else 1


def _known_types(request: Any, items: Sequence[Any], context: Context) -> bool:
    """One resource of an unknown type refuses them all."""
    known = set(ConfigResourceType)
    return all(item.resource_type in known for item in items)


def _few_partitions(request: Any, items: Sequence[Any], context: Context) -> bool:
    """Too many partitions in all refuse the request."""
    topics = context.cluster.image.topics
    counts = (item.count for item in items if TopicName(item.name) in topics)
    total: int = sum(counts)
    return total <= MAX_PARTITIONS_PER_REQUEST


def _all_by_name_or_all_by_id(request: Any, items: Sequence[Any], context: Context) -> bool:
    """A topic named and another given by id may be the same; one that is neither refuses them all."""
    return len({(item.name is None, item.topic_id == NO_TOPIC_ID) for item in items}) == 1


def _creates_few(request: Any, items: Sequence[Any], context: Context) -> bool:
    """Topics that are created because somebody asks are created in one commit, too many at once are refused."""
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
    """Decide a large request: not in the turn in which it was decoded, and in parts where it can be."""
    yield NextSlice()
    for where in _SEPARABLE.get(api, ()):
        items = getattr(request, where.items) or ()
        size = items_per_slice(context.partitions)
        if sum(map(where.weight, items)) > size and where.separable(request, items, context):
            return (yield from _in_parts(handle, request, context, where, size))
    return (yield from handle(request, context))


def _in_parts(handle: Handle, request: Message, context: Context, where: _Items, size: int) -> Steps[Message | None]:
    response: Message | None = None
    for continues, items in _parts(getattr(request, where.items), where, size):
        part = copy(request)
        setattr(part, where.items, items)
        answer = yield from handle(part, context)
        if response is None:
            response = answer
        else:
            _add(getattr(response, where.answers), getattr(answer, where.answers), where, continues=continues)
        yield NextSlice()
    return response


def _add(answers: list[Any], more: list[Any], where: _Items, *, continues: bool) -> None:
    """Add the answers of one more part; ``continues``: the first of them goes on with the last there is."""
    if continues and where.inner is not None and answers and more:
        getattr(answers[-1], where.inner.answers).extend(getattr(more[0], where.inner.answers))
        more = more[1:]
    answers.extend(more)


def _parts(items: Sequence[Any], where: _Items, size: int) -> Iterator[tuple[bool, list[Any]]]:
    """Items in their order, but those with the same key together with the first of them; whether the first of a part
    goes on with the last of the part before."""
    part: list[Any] = []
    weight, part_continues = 0, False
    for continues, pieces in _pieces(items, where, size):
        if weight >= size:
            yield part_continues, part
            part, weight = [], 0
        if not part:
            part_continues = continues
        part += pieces
        weight += sum(map(where.weight, pieces))
    if part:
        yield part_continues, part


def _pieces(items: Sequence[Any], where: _Items, size: int) -> Iterator[tuple[bool, list[Any]]]:
    """The pieces that stay in one part: items named alike, or a part of one that is too large. One that continues
    another comes after a full part, so that it is the first of its own."""
    inner = where.inner
    for alike in _alike(items, where.key):
        if inner is None or sum(map(where.weight, alike)) <= size:
            yield False, alike
            continue
        whole = [each for item in alike for each in getattr(item, inner.items)]
        continues, chunk = False, list[Any]()
        for together in _alike(whole, inner.key):
            if len(chunk) >= size:
                yield continues, [_with(alike[0], inner.items, chunk)]
                continues, chunk = True, []
            chunk += together
        yield continues, [_with(alike[0], inner.items, chunk)]


def _with(item: Any, name: str, value: object) -> Any:
    changed = copy(item)
    setattr(changed, name, value)
    return changed


def _alike(items: Sequence[Any], key: Callable[[Any], object]) -> Iterable[list[Any]]:
    """Items by what they are about, in the order of the first of each."""
    found: dict[object, list[Any]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found.values()
