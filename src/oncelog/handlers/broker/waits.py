"""The waits of handlers.

A handler that waits is a generator: it yields one of these, is resumed with the outcome in its docstring, and returns
the response. The node drives it: a handler knows neither loop nor thread. Later requests of the connection are not
decided meanwhile, unless ``holds_connection`` is False. Two waits with the same contents are not equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from oncelog.base.ids import NO_PRODUCER_ID, GroupId, Offset, ProducerId, TopicPartition, TransactionalId
from oncelog.base.tree import Operation

if TYPE_CHECKING:
    from oncelog.core.groups.model import GroupDecision
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.share_state.model import DeleteState, InitializeState, ShareKey, StateRequest, SummarizeState
    from oncelog.core.transactions.identity import Identity
    from oncelog.core.transactions.model import AddRequest, TransactionRequest
    from oncelog.handlers.broker.shares import PendingAcknowledgement


FetchKey: TypeAlias = "TopicPartition | ShareKey"
"""A fetch waits for data of a partition, or for records of a share partition (KIP-932)."""


class Wait:
    __slots__ = ()
    holds_connection: bool = True
    """False if only the response is held back: later requests of the connection are decided, and pipelined requests
    share one group commit."""


@dataclass(slots=True, eq=False)
class UntilDurable(Wait):
    """Wait until every high watermark has reached its offset (acks=all). Resumed with the partitions that have not by
    ``deadline_ms`` (empty: all have)."""

    offsets: Mapping[TopicPartition, Offset]
    deadline_ms: int
    holds_connection: bool = False
    """True if requests behind this one wait too, because more of it is decided afterwards."""


@dataclass(slots=True, eq=False)
class UntilReadable(Wait):
    """Wait until ``ready(changed)`` is true or ``deadline_ms`` passes. Resumed with None.

    ``ready`` gets the changed keys whenever some of ``partitions`` have new readable data, were truncated or
    disappeared, or a share partition may have records again. Fetches are asked in order of arrival: records that
    ``ready`` acquires are gone for the next. ``gives_way``: ends with the client's next request on the connection.
    ``ends_with_client``: ends when the client has closed.
    """

    partitions: Sequence[FetchKey] | None
    """None: any partition."""
    ready: Callable[[Sequence[Any]], bool]
    deadline_ms: int
    gives_way: bool = False
    ends_with_client: bool = True
    """False if more than the response is left to do, or the response would change during the wait."""


class UseShares(Wait):
    """Reach the share partitions of this broker, made with its first request of a share group. Resumed with a
    ``handlers.broker.shares.Shares``."""


@dataclass(slots=True, eq=False)
class UntilAcknowledged(Wait):
    """Wait until all acknowledgements are settled: durable, or refused. Resumed with None."""

    pending: Sequence[PendingAcknowledgement]


@dataclass(slots=True, eq=False)
class Coordinate(Wait):
    """Decide in the shard that coordinates ``group_id``.

    ``decide(shard, token, now_ms)`` returns a decision, whose records are appended, applied and made durable. Resumed
    with the reply, at once or when a later decision releases ``token``. Raises ``CoordinatorRefusal(error_code)``
    inside the handler if this broker does not coordinate the group, is still loading, or could not append.
    """

    group_id: GroupId
    decide: Callable[[GroupShard, int, int], GroupDecision]
    ends_with_client: bool = False
    """True if only the response is left once the shard has decided: requests behind a closed client's need not wait for
    the rest of the group."""


@dataclass(slots=True, eq=False)
class Transact(Wait):
    """Decide ``request`` in the shard that coordinates its transactional id, like :class:`Coordinate`.

    A reply ``NeedsProducerId`` asks for a new id (:class:`UntilProducerId`) and another decision with it.
    """

    request: TransactionRequest
    producer_id: ProducerId = NO_PRODUCER_ID
    """A new id, for a decision that needs it."""


@dataclass(slots=True, eq=False)
class TransactEach(Wait):
    """Decide several requests side by side: one that waits for its transaction to complete delays no other. Resumed
    with the reply or the ``CoordinatorRefusal`` of each, in order.
    """

    requests: Sequence[Transact]


@dataclass(slots=True, eq=False)
class AddToTransaction(Wait):
    """Add partitions to a transaction, or verify that they take part, wherever its coordinator is. Resumed with a
    durable ``AddReply`` or ``VerifyReply``. Raises ``CoordinatorRefusal(error_code)`` inside the handler if the
    coordinator cannot be reached, or refuses.
    """

    request: AddRequest


@dataclass(slots=True, eq=False)
class KeepShareStates(Wait):
    """Decide requests about states of share partitions that this broker coordinates, side by side. Resumed with the
    durable ``StateReply`` or the ``CoordinatorRefusal`` of each, in order.
    """

    requests: Sequence[StateRequest]


@dataclass(slots=True, eq=False)
class UntilMarked(Wait):
    """Wait until no decided transaction of ``producer_ids``, on any coordinator, lacks its marker on ``partition``.
    Resumed with True; False after ``deadline_ms`` or if a coordinator cannot be asked.
    """

    partition: TopicPartition
    producer_ids: frozenset[ProducerId]
    deadline_ms: int
    ends_with_client: ClassVar[bool] = True
    """Offsets are read afterwards, and nothing is changed."""


@dataclass(slots=True, eq=False)
class UntilConfirmed(Wait):
    """Wait for proof that no other broker had begun to lead ``partitions`` when the wait began. Resumed with the errors
    of the others: NOT_LEADER_OR_FOLLOWER, or REQUEST_TIMED_OUT if unknown at ``deadline_ms``.
    """

    partitions: Sequence[TopicPartition]
    deadline_ms: int


@dataclass(slots=True, eq=False)
class AskCoordinator(Wait):
    """Ask the coordinator of ``transactional_id``, on any broker, about ``identity``'s transaction on ``partition``.
    Resumed with a ``Finding``, or None if it cannot be asked. Another broker's answer may be outdated on arrival: check
    the partition again.
    """

    transactional_id: TransactionalId
    identity: Identity
    partition: TopicPartition


@dataclass(slots=True, eq=False)
class FindTransactionalId(Wait):
    """Ask all coordinators for the transactional id of a producer's open or completing transaction. Resumed with it, or
    None if no coordinator knows one. Raises ``CoordinatorRefusal(error_code)`` inside the handler if none knows it and
    one cannot be asked.
    """

    producer_id: ProducerId


@dataclass(slots=True, eq=False)
class PersistShareStates(Wait):
    """Have the share coordinators of partitions, on any brokers, make, delete or describe their state. Resumed with the
    ``Persisted`` or ``StateSummary`` of each request, in order; errors that may pass have been retried. Resumed with
    None while only some are on their way: to be yielded again.
    """

    requests: Sequence[InitializeState | DeleteState | SummarizeState]
    outcomes: list[object] = field(default_factory=list)
    """Those of the requests that were sent."""
    ends_with_client: bool = False


@dataclass(slots=True, eq=False)
class AskLogEnds(Wait):
    """Ask the leaders of partitions, on any brokers, for the ends of what consumers can read. Resumed with the offset
    or an ErrorCode of each."""

    partitions: Collection[TopicPartition]
    ends_with_client: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class CommitMetadata(Wait):
    """Change the coordination tree atomically. Resumed with a ``CommitOutcome``: COMMITTED (the image has the change;
    logs are created, altered or marked for deletion), CONFLICT (read the image and decide again) or UNAVAILABLE.
    """

    operations: Sequence[Operation]


@dataclass(slots=True, eq=False)
class ReadNodes(Wait):
    """Read nodes of the tree that the image lacks. Resumed with the values of existing nodes by path, or None if the
    tree cannot be read.
    """

    paths: Sequence[str]


@dataclass(slots=True, eq=False)
class UntilProducerId(Wait):
    """Take a new producer id from the broker's block. Resumed with it, or None if no block came in time."""


@dataclass(slots=True, eq=False)
class UntilElected(Wait):
    """Wait until ``ready()``, called when the image or ``ClusterView.failed_brokers`` changes. Resumed with None. A
    broker counts as lost for half a second at most, which bounds the wait.
    """

    ready: Callable[[], bool]


@dataclass(slots=True, eq=False)
class NextSlice(Wait):
    """Let other connections run: a request of tens of thousands of items works in slices of milliseconds. Resumed with
    None. Anything may change in between, so an atomic decision stays within one.
    """


@dataclass(slots=True, eq=False)
class Answer(Wait):
    """Send ``response`` now. The handler goes on beside later requests of its connection, even if that closes, and
    returns None. Resumed with None.
    """

    response: Any


class Lane(IntEnum):
    """A queue of work for workers: one request's work at a time in a lane, lanes side by side."""

    LARGE = 0
    """Work that may hold a hundred megabytes."""
    SMALL = 1
    """Work of a millisecond that holds no memory."""
    PATTERNS = 2
    """Slow work that holds no memory; only requests with patterns wait for it."""


@dataclass(slots=True, eq=False)
class Offload(Wait):
    """Wait until a worker has driven ``steps`` to their end, after earlier work in the same ``lane``. Resumed with
    their result; their exceptions are raised inside the handler. They touch only their arguments, and are dropped
    between two steps if the request is gone.
    """

    steps: Generator[None, None, Any]
    lane: Lane = Lane.LARGE
    ends_with_client: bool = False
    """True if the request changes nothing: its work is dropped once the client is gone."""


R = TypeVar("R")
Steps = Generator[Wait, Any, R]
"""A handler that waits: it yields Waits and returns a response. Parts compose with ``yield from``."""
