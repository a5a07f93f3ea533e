"""A share group of a simulation: its members, its configuration, and the times at which it is to be empty."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from oncelog.sim.virtual.world import ClientHost

# Of the cycle of a group whose offsets are changed: members leave for its last part.
CYCLE_MS: Final = 30_000
CLOSED_MS: Final = 12_000


@dataclass(frozen=True, slots=True)
class ShareGroup:
    name: str
    topic: str
    members: int
    read_committed: bool
    dead_letter_topic: str
    creates_dead_letter_topic: bool
    # Administrators change its offsets now and then, while it is empty.
    is_altered: bool
    # Share of polls whose records a member works on for long.
    slow: float
    # Shares of records.
    releases: float
    rejects: float
    renews: float
    forgets: float

    @classmethod
    def draw(cls, name: str, topic: str, entropy: random.Random) -> ShareGroup:
        has_dead_letters = entropy.random() < 0.5
        return cls(
            name,
            topic,
            members=entropy.randint(1, 3),
            read_committed=entropy.random() < 0.6,
            dead_letter_topic=f"dlq.{name}" if has_dead_letters else "",
            creates_dead_letter_topic=entropy.random() < 0.5,
            is_altered=entropy.random() < 0.2,
            slow=entropy.choice((0.02, 0.1, 0.5)),
            releases=entropy.choice((0.05, 0.3)),
            rejects=entropy.choice((0.02, 0.1)),
            renews=entropy.choice((0.0, 0.05)),
            forgets=entropy.choice((0.0, 0.02)),
        )

    @property
    def configs(self) -> dict[str, str]:
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
        }
        if self.dead_letter_topic:
            configs["errors.deadletterqueue.topic.name"] = self.dead_letter_topic
        return configs

    def is_closed(self, host: ClientHost) -> bool:
        """True while the group is to be empty."""
        if not self.is_altered or host.stopping or host.world.is_calm:
            return False
        return host.now_ms % CYCLE_MS >= CYCLE_MS - CLOSED_MS
