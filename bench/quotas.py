"""Quotas that are set so high that nobody reaches them, beside none at all: what counting costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.peers.clients.sweep.wire import Wire

from bench.options import Options, progress
from bench.peers import Broker, create_topics, delete_topics, running
from bench.report import Comparison, Figures, paired
from bench.workloads import consume, produce
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

_HIGH: Final = {
    "producer_byte_rate": 1e15,
    "consumer_byte_rate": 1e15,
    "request_percentage": 1e9,
    "controller_mutation_rate": 1e9,
}
_GOALS: Final = {"produce, records/s": "≥ 0.97 ×", "consume, records/s": "≥ 0.97 ×"}


def quotas(options: Options) -> Comparison:
    """Produce and consume 100 B with quotas set for every client id, and with none (oncelog twice)."""
    count = options.scaled(1_500_000)

    def side(broker: Broker, number_of_side: int) -> Callable[[int], Figures]:
        def once(number: int) -> Figures:
            (topic,) = create_topics(broker, 1, 1, f"quotas{number_of_side}-{number + 1}")
            try:
                produced = produce(broker, topic, 100, count).figures("produce")
                return {**produced, **consume(broker, topic, 100, count).figures("consume")}
            finally:
                delete_topics(broker, [topic])

        return once

    with (
        TemporaryDirectory(prefix="oncelog-bench-") as directory,
        running(options.ours.broker(Path(directory, "with"))) as limited,
        running(options.ours.broker(Path(directory, "without"))) as unlimited,
    ):
        _set_high(limited.bootstrap_servers)
        sides = (side(limited, 1), side(unlimited, 2))
        for item in sides:
            item(-1)
        comparison = Comparison("Quotas set, 100 B", "quotas set", "none set", _GOALS)
        return paired(comparison, sides, options.repeat, progress)


def _set_high(bootstrap: str) -> None:
    ops = [OpData(key=key, value=value) for key, value in _HIGH.items()]
    entry = EntryData(entity=[EntityData(entity_type="client-id", entity_name=None)], ops=ops)
    with Wire(bootstrap) as wire:
        answer = wire.call(AlterClientQuotasRequest(entries=[entry]), 1)
        if answer.entries[0].error_code:
            raise RuntimeError(answer.entries[0].error_message)
