"""Requests to share coordinators on other brokers: those of one kind and group share a message (APIs 83 to 87).

One message of each kind and group is on its way to a broker at a time: it is answered when its changes are durable,
and requests queued meanwhile share the next.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, GroupId
from oncelog.core.share_state.model import ReadState, ShareKey, StateReply, StateRequest, WriteState
from oncelog.handlers.share.state import REQUESTS_PER_SLICE
from oncelog.handlers.share.state_messages import message_of, replies_in
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, Cancel, ChangeShareState, OnAnswer
from oncelog.node.brokers.requests.batched import MOST_BYTES, Queued

MOST_REQUESTS: Final = REQUESTS_PER_SLICE
MOST_READS: Final = 100
"""A state may have thousands of batches, and a response of many reads would be large."""
_BATCH_BYTES: Final = 20
_MOST_BATCHES: Final = MOST_BYTES // _BATCH_BYTES - 1
"""The most batches of one share partition in a message: a receiver decodes ``REQUEST_MAX_ELEMENTS`` elements in all."""

_Lane = tuple[BrokerId, type, GroupId]


class ShareStateRequests:
    def __init__(self, links: BrokerLinks) -> None:
        self._links = links
        self._queues: dict[_Lane, deque[Queued[ChangeShareState]]] = {}
        self._under_way: set[_Lane] = set()

    def send(self, broker_id: BrokerId, message: ChangeShareState, on_answer: OnAnswer) -> Cancel:
        parts = _parts_of(message.request)
        answer = on_answer if len(parts) == 1 else _Answers(len(parts), on_answer).add
        key = parts[0].key
        queue = self._queues.setdefault((broker_id, type(parts[0]), key.group_id), deque())
        queued = [Queued(ChangeShareState(part), answer) for part in parts]
        queue += queued
        return partial(_forget, queued)

    def send_queued(self) -> bool:
        """Send where nothing is on its way; True if some requests still wait."""
        for lane in list(self._queues):
            if lane not in self._under_way:
                self._send_next(lane)
        return bool(self._queues)

    def _send_next(self, lane: _Lane) -> None:
        queue = self._queues[lane]
        # A response tells requests apart by their keys alone.
        taken: dict[ShareKey, Queued[ChangeShareState]] = {}
        size = 0
        most = MOST_READS if lane[1] is ReadState else MOST_REQUESTS
        while queue and len(taken) < most:
            request = queue[0].message.request
            if queue[0].on_answer is not None:
                if request.key in taken or (taken and size + _size_of(request) > MOST_BYTES):
                    break
                taken[request.key] = queue[0]
                size += _size_of(request)
            queue.popleft()
        if not queue:
            del self._queues[lane]
        if taken:
            self._under_way.add(lane)
            message = message_of([queued.message.request for queued in taken.values()])
            self._links.request(lane[0], LinkPurpose.SHARE, message, partial(self._answered, lane, taken))

    def _answered(self, lane: _Lane, sent: dict[ShareKey, Queued[ChangeShareState]], response: Any) -> None:
        self._under_way.discard(lane)
        replies = {} if response is None else replies_in(lane[1], response)
        for key, queued in sent.items():
            queued.answer(replies.get((key.topic_id, key.partition), UNREACHABLE))


class _Answers:
    """The answer to a write that was sent in parts: the first failure, else that of the last part."""

    def __init__(self, count: int, on_answer: OnAnswer) -> None:
        self._left = count
        self._on_answer = on_answer
        self._failure: object | None = None

    def add(self, answer: object) -> None:
        self._left -= 1
        is_refusal = not isinstance(answer, StateReply) or answer.error_code is not ErrorCode.NONE
        if is_refusal and self._failure is None:
            self._failure = answer
        if not self._left:
            self._on_answer(answer if self._failure is None else self._failure)


def _parts_of(request: StateRequest) -> list[StateRequest]:
    """A write with more batches than a message takes, in parts.

    Each has the start offset and the count of the whole, which the coordinator merges as those of one write. If a part
    fails the write has failed, and is repeated whole. The coordinator may keep the other parts then, just as it may
    keep a write whose answer is lost.
    """
    if not isinstance(request, WriteState) or len(request.batches) <= _MOST_BATCHES:
        return [request]
    return [
        request._replace(batches=request.batches[first : first + _MOST_BATCHES])
        for first in range(0, len(request.batches), _MOST_BATCHES)
    ]


def _forget(queued: list[Queued[ChangeShareState]]) -> None:
    for part in queued:
        part.forget()


def _size_of(request: StateRequest) -> int:
    return _BATCH_BYTES * (1 + len(request.batches)) if isinstance(request, WriteState) else _BATCH_BYTES
