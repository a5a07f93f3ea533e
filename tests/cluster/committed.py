"""Committed numbers of a partition, as a reader finds them that is no part of the drill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.load import read_to_end


@dataclass(frozen=True)
class Servers:
    """The addresses of clients, and how they come to them."""

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict)


def read_committed(servers: Servers, topic: str, partition: int) -> list[int]:
    """The numbers in a partition, in order, by librdkafka at read_committed."""
    settings = {"isolation.level": "read_committed", **servers.security}
    return [int(message.value() or b"") for message in read_to_end(servers.bootstrap, topic, [partition], settings)]
