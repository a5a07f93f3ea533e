"""Settings of a mirror: one source and its target, what is copied, and how names change.

The rule: values are checked once, here; an engine is given what is right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from oncelog.base.ids import TopicName
from oncelog.base.units import MIB, SECOND_MS
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ConfigError

SEPARATOR: Final = "."
T = TypeVar("T", bound=StrEnum)
RESERVED_ALIAS: Final = "topics"
"""The positions topic of a source of this name would be the topic of ``provenance``."""
_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_TOPIC: Final = 249


class Naming(StrEnum):
    """The name of a topic at the target: ``a.orders`` or ``orders``."""

    prefix = "prefix"
    identity = "identity"


class OnGap(StrEnum):
    """Answers to a gap: records of the source that are gone before they were copied."""

    fail = "fail"
    record = "record"


class Begin(StrEnum):
    """First positions of a partition that has none yet."""

    earliest = "earliest"
    latest = "latest"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to connect to; ``alias`` is a source's name in topics, and empty for a target that needs none."""

    alias: str
    bootstrap_servers: str
    config: ClientConfig = field(default_factory=ClientConfig)


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Settings of one engine: what it copies, and how. Times in milliseconds."""

    source: Cluster
    target: Cluster
    topics: re.Pattern[str]
    groups: re.Pattern[str] | None = None
    naming: Naming = Naming.prefix
    begin: Begin = Begin.earliest
    on_gap: OnGap = OnGap.fail
    read_committed: bool = True
    instance: str = "0"
    """Distinguishes the instances that share the work; one that starts again under its name takes over at once."""
    sync_configs: bool = True
    sync_acls: bool = False
    delete_topics: bool = False
    replication_factor: int = -1
    """The replication factor of topics made at the target; −1 leaves it to the target."""
    commit_interval_ms: int = 500
    refresh_interval_ms: int = 5 * SECOND_MS
    groups_interval_ms: int = 3 * SECOND_MS
    transaction_timeout_ms: int = 15 * SECOND_MS
    session_timeout_ms: int = 10 * SECOND_MS
    transaction_bytes: int = 64 * MIB
    buffer_bytes: int = 16 * MIB

    def __post_init__(self) -> None:
        if not _ALIAS.fullmatch(self.source.alias):
            raise ConfigError(
                f"--source {self.source.alias!r}: a name for a source has letters, digits, '_' and '-', at most 64"
            )
        if self.source.alias == RESERVED_ALIAS:
            raise ConfigError(
                f"--source {RESERVED_ALIAS!r}: mirrors keep something else under that name; give the source another"
            )
        if self.source.alias == self.target.alias:
            raise ConfigError(f"--source and --target are both named {self.source.alias!r}; give them different names")

    @property
    def group(self) -> str:
        """The group that instances share the work in; its transactions begin with the same word."""
        return f"oncelog-mirror-{self.source.alias}"

    @property
    def transactional_id(self) -> str:
        return f"{self.group}-{self.instance}"

    def target_name(self, topic: str) -> TopicName:
        """The name that a topic of the source has at the target. Raises ConfigError where that is too long."""
        if self.naming is Naming.identity:
            return TopicName(topic)
        name = f"{self.source.alias}{SEPARATOR}{topic}"
        if len(name) > _LONGEST_TOPIC:
            raise ConfigError(f"topic {topic!r} would be {name!r} at the target, which is longer than 249 characters")
        return TopicName(name)

    def wants(self, topic: str, *, is_internal: bool) -> bool:
        """True if a topic of the source is to be copied, as far as its name tells."""
        if is_internal or topic.startswith("__") or not self.topics.fullmatch(topic):
            return False
        came_from_target = self.target.alias and topic.startswith(self.target.alias + SEPARATOR)
        return not (came_from_target and self.naming is Naming.prefix)

    def wants_group(self, group: str) -> bool:
        """True if offsets of a group of the source are to be translated."""
        return (
            self.groups is not None and not group.startswith("oncelog-mirror-") and bool(self.groups.fullmatch(group))
        )


def compiled(pattern: str, option: str) -> re.Pattern[str]:
    """A regular expression, as an option gives it. Raises ConfigError."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{option} {pattern!r} is not a regular expression: {error}") from None


def choice(kind: type[T], text: str | None, default: T, option: str) -> T:
    """A value of an enumeration by its name. Raises ConfigError."""
    try:
        return default if text is None else kind(text)
    except ValueError:
        raise ConfigError(f"{option} {text!r} is not one of {', '.join(kind)}") from None
