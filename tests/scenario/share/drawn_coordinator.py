"""A share coordinator whose answers are held, late, lost or errors, as drawn: the persister of random histories."""

from __future__ import annotations

import random

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import LeaderEpoch
from oncelog.core.share.model import ShareState
from oncelog.core.share_state.model import ReadState, SummarizeState, WriteState
from oncelog.core.share_state.settings import ShareStateSettings
from oncelog.core.share_state.shard import ShareStateShard
from oncelog.node.share.persister import Persisted, StateRead, StateSummary


class Message:
    """A request to the share coordinator: it arrives, and its answer does, or neither."""

    def __init__(self, request, done) -> None:
        self.request = request
        self.done = done
        self.reply = None


class DrawnCoordinator:
    """A persister before a share coordinator's own machine."""

    def __init__(self, entropy: random.Random, least_limit: int) -> None:
        self.entropy = entropy
        self.least_limit = least_limit
        self.shard = ShareStateShard(0, ShareStateSettings(updates_per_snapshot=5), lambda _topic: 1)
        self.shard.loaded(0)
        self.holds = False
        self.messages: list[Message] = []
        self.spent: set[int] = set()
        """Records whose deliveries may have reached the limit."""

    def read(self, key, leader_epoch, done):
        def answered(reply) -> None:
            state = reply.state
            read = None if state is None else ShareState(state.state_epoch, state.start_offset, -1, state.batches)
            done(StateRead(reply.error_code, reply.message, read))

        return self._send(ReadState(key, leader_epoch), answered)

    def write(self, key, leader_epoch, state, done):
        for first, last, _, count in state.batches:
            self.spent.update(range(first, last + 1) if count >= self.least_limit else ())
        request = WriteState(
            key, state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, state.batches
        )
        return self._send(request, lambda reply: done(Persisted(reply.error_code, reply.message)))

    def summary(self, key, leader_epoch, done):
        def answered(reply) -> None:
            state = reply.state
            epochs = () if state is None else (state.state_epoch, state.leader_epoch, state.start_offset)
            done(StateSummary(reply.error_code, reply.message, *epochs))

        return self._send(SummarizeState(key, leader_epoch), answered)

    def decide(self, request):
        decision = self.shard.decide(request, 0)
        for key, value in decision.records:
            self.shard.apply(key, value)
        self.shard.check()
        return decision.reply

    def _send(self, request, done):
        message = Message(request, done)
        if self.holds and self.entropy.random() < 0.6:
            self.messages.append(message)
        else:
            done(self.decide(request))
        return lambda: None

    def go_on(self) -> None:
        """One message arrives, is answered, or fails; after its failure it may still arrive."""
        message = self.entropy.choice(self.messages)
        does_arrive, does_fail = self.entropy.random() < 0.7, self.entropy.random() < 0.2
        if does_arrive and message.reply is None:
            message.reply = self.decide(message.request)
        if message.done is None:
            self.messages.remove(message)
        elif does_fail:
            done, message.done = message.done, None
            reply = message.reply or self.shard.decide(SummarizeState(message.request.key, LeaderEpoch(0)), 0).reply
            done(reply._replace(error_code=E.COORDINATOR_NOT_AVAILABLE, message="no", state=None))
        elif message.reply is not None:
            self.messages.remove(message)
            message.done(message.reply)

    def heal(self) -> None:
        self.holds = False
        while self.messages:
            message = self.messages.pop(self.entropy.randrange(len(self.messages)))
            reply = message.reply or self.decide(message.request)
            if message.done is not None:
                message.done(reply)
