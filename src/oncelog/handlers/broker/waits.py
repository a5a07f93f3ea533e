"""The waits of handlers.

A handler that needs to wait is a generator: it yields one of these and is resumed with the outcome named in its
docstring; it returns the response. The node drives it, so that a handler knows neither loop nor thread.
While a generator waits, later requests of its connection are not decided, unless ``holds_connection`` is False:
then only its response is held back, so that pipelined requests share one group commit. A wait is one request's: two
with the same contents are not equal.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from oncelog.base.ids import NO_PRODUCER_ID, GroupId, Offset, ProducerId, TopicPartition, TransactionalId
from oncelog.base.tree import Operation

if TYPE_CHECKING:
    from oncelog.core.groups.model import GroupDecision
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.transactions.model import AddRequest, Identity, TransactionRequest


class Wait:
    """One thing that a handler waits for."""

    __slots__ = ()
    holds_connection: bool = True
    """False where only the response is held back, and later requests of the connection are decided meanwhile."""


@dataclass(slots=True, eq=False)
class UntilDurable(Wait):
    """A wait until every high watermark has reached the offset named for it (acks=all). Resumed with the set that has
    not by ``deadline_ms`` (empty: all have)."""

    offsets: Mapping[TopicPartition, Offset]
    deadline_ms: int
    holds_connection: bool = False
    """True if the requests behind this one have to wait too: more of it is to be decided afterwards."""


@dataclass(slots=True, eq=False)
class UntilReadable(Wait):
    """A wait until ``ready(changed)`` is true, asked whenever some of ``partitions`` have new readable data, were
    truncated or disappeared, and told which; or ``deadline_ms``. Resumed with None. One that ``gives_way`` ends, too,
    when its client sends another request on the same connection; one that ``ends_with_client``, when its client has
    closed."""

    partitions: Sequence[TopicPartition] | None
    """None: any partition."""
    ready: Callable[[Sequence[TopicPartition]], bool]
    deadline_ms: int
    gives_way: bool = False
    ends_with_client: bool = True
    """False where more than the answer is left to do, or the answer would be another one before the wait is over."""


@dataclass(slots=True, eq=False)
class Coordinate(Wait):
    """Decide in the shard that coordinates ``group_id``.

    ``decide(shard, token, now_ms)`` returns a decision. Its records are appended and applied, and when they are durable
    the handler is resumed with its reply: at once, or when a later decision releases ``token``.
    Raises ``CoordinatorRefusal(error_code)`` inside the handler when this broker does not coordinate the group,
    is still loading, or could not append.
    """

    group_id: GroupId
    decide: Callable[[GroupShard, int, int], GroupDecision]
    ends_with_client: bool = False
    """True if nothing but the answer is left to do once the shard has decided: requests behind one whose client has
    closed need not wait for the rest of its group."""


@dataclass(slots=True, eq=False)
class Transact(Wait):
    """Decide ``request`` in the shard that coordinates its transactional id; otherwise as :class:`Coordinate`.

    Resumed with the reply, also when that is ``NeedsProducerId``: then get one (:class:`UntilProducerId`) and decide
    again with it. Raises ``CoordinatorRefusal(error_code)`` inside the handler.
    """

    request: TransactionRequest
    producer_id: ProducerId = NO_PRODUCER_ID
    """A new one, for a decision that needs it."""


@dataclass(slots=True, eq=False)
class TransactEach(Wait):
    """Decide several times, side by side: one that waits for its transaction to complete holds up no other.

    Resumed with a list when all are answered: of each the reply or the ``CoordinatorRefusal``, in order.
    """

    asked: Sequence[Transact]


@dataclass(slots=True, eq=False)
class AddToTransaction(Wait):
    """Add partitions to a transaction, or verify that they take part, wherever its coordinator is.

    Resumed with its ``AddReply`` or ``VerifyReply``, by what is durable. Raises ``CoordinatorRefusal(error_code)``
    inside the handler when the coordinator cannot be found or reached, or refuses.
    """

    request: AddRequest


@dataclass(slots=True, eq=False)
class UntilMarked(Wait):
    """A wait until no decided transaction of ``producer_ids`` lacks its marker on ``partition``, whichever brokers
    coordinate them. Resumed with True; with False when ``deadline_ms`` has passed before, or a coordinator cannot be
    asked."""

    partition: TopicPartition
    producer_ids: frozenset[ProducerId]
    deadline_ms: int
    ends_with_client: ClassVar[bool] = True
    """Offsets are read behind it, and nothing is changed."""


@dataclass(slots=True, eq=False)
class UntilConfirmed(Wait):
    """A wait until it is certain of which of ``partitions`` no other broker has begun to lead them before the wait
    began. Resumed with the errors of those where it is not: NOT_LEADER_OR_FOLLOWER when one has, REQUEST_TIMED_OUT when
    nobody could tell by ``deadline_ms``."""

    partitions: Sequence[TopicPartition]
    deadline_ms: int


@dataclass(slots=True, eq=False)
class AskCoordinator(Wait):
    """Ask the coordinator of ``transactional_id``, on whichever broker it is, about what ``identity`` has open on
    ``partition``. Resumed with a ``Finding``, or None where the coordinator cannot be asked. On another broker the
    answer is as old as its way back: the partition has to be looked at again."""

    transactional_id: TransactionalId
    identity: Identity
    partition: TopicPartition


@dataclass(slots=True, eq=False)
class FindTransactionalId(Wait):
    """Ask all coordinators under which transactional id a producer has a transaction that is open or being completed.
    Resumed with the id, or None where no coordinator knows of one. Raises ``CoordinatorRefusal(error_code)`` inside the
    handler when none of those that answered knows and one cannot be asked."""

    producer_id: ProducerId


@dataclass(slots=True, eq=False)
class CommitMetadata(Wait):
    """Change the coordination tree atomically. Resumed with a ``CommitOutcome``: COMMITTED (the cluster image has it,
    its logs are created, altered or marked for deletion), CONFLICT (read the image and decide again) or UNAVAILABLE."""

    operations: Sequence[Operation]


@dataclass(slots=True, eq=False)
class ReadNodes(Wait):
    """Read nodes of the coordination tree that the cluster's image does not have. Resumed with the values of those that
    exist, by path, or None where the tree cannot be read."""

    paths: Sequence[str]


@dataclass(slots=True, eq=False)
class UntilProducerId(Wait):
    """A new producer id from the broker's block. Resumed with it, or None when no block could be had in time."""


@dataclass(slots=True, eq=False)
class UntilElected(Wait):
    """A wait until ``ready()`` is true, asked whenever the cluster's image changes, or a broker is lost no more
    (``ClusterView.failed_brokers``). Resumed with None. True at the latest when nobody is lost: half a second."""

    ready: Callable[[], bool]


@dataclass(slots=True, eq=False)
class NextSlice(Wait):
    """A wait until other connections had their turn: a request of tens of thousands of items is worked on in slices of
    a few milliseconds. Resumed with None; between two slices everything may have changed, so what is decided as one is
    decided within one slice."""


class Lane(IntEnum):
    """A queue of work for workers: within a lane one request's work is done at a time, lanes go on side by side."""

    LARGE = 0
    """Work that may hold a hundred megabytes."""
    SMALL = 1
    """Work of a millisecond that holds no memory."""
    PATTERNS = 2
    """Work that takes time and no memory; only requests with patterns wait for it."""


@dataclass(slots=True, eq=False)
class Offload(Wait):
    """A wait until a worker has driven ``steps`` to their end, after what others have in the same ``lane``. The steps
    touch nothing but what they were given; between two of them they are given up, if nobody waits any more. Resumed
    with what they return; what they raise is raised inside the handler."""

    steps: Generator[None, None, Any]
    lane: Lane = Lane.LARGE
    ends_with_client: bool = False
    """True if the request changes nothing: its work is given up once nobody can be answered."""


R = TypeVar("R")
Steps = Generator[Wait, Any, R]
"""A handler that waits: yields Waits, returns a response. Parts of it compose with ``yield from``."""
