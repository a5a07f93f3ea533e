"""Requests to share coordinators on other brokers: those of one kind and group share a message (APIs 83 to 87).

One message of each kind and group is on its way to a broker at a time: it is answered when its changes are durable,
and requests queued meanwhile share the next.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Final

from oncelog.base.ids import BrokerId, GroupId
from oncelog.core.share_state.model import ReadState, ShareKey, StateRequest, WriteState
from oncelog.handlers.share.state import REQUESTS_PER_SLICE
from oncelog.handlers.share.state_messages import message_of, replies_in
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, Cancel, ChangeShareState, OnAnswer
from oncelog.node.brokers.requests.batched import MOST_BYTES, Queued

MOST_REQUESTS: Final = REQUESTS_PER_SLICE
MOST_READS: Final = 100
"""A state may have thousands of batches, and a response of many reads would be large."""
_BATCH_BYTES: Final = 20

_Lane = tuple[BrokerId, type, GroupId]


class ShareStateRequests:
    def __init__(self, links: BrokerLinks) -> None:
        self._links = links
        self._queues: dict[_Lane, deque[Queued[ChangeShareState]]] = {}
        self._under_way: set[_Lane] = set()

    def send(self, broker_id: BrokerId, message: ChangeShareState, on_answer: OnAnswer) -> Cancel:
        request = message.request
        queued = Queued(message, on_answer)
        self._queues.setdefault((broker_id, type(request), request.key.group_id), deque()).append(queued)
        return queued.forget

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
        while queue and len(taken) < most and size < MOST_BYTES:
            request = queue[0].message.request
            if queue[0].on_answer is not None:
                if request.key in taken:
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


def _size_of(request: StateRequest) -> int:
    return _BATCH_BYTES * (1 + len(request.batches)) if isinstance(request, WriteState) else _BATCH_BYTES
