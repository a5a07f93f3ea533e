"""Settings of a mirror: its source and target, the topics to copy, and how names change. All are validated here."""

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
SCHEMAS_TOPIC: Final = "_schemas"
T = TypeVar("T", bound=StrEnum)
RESERVED_ALIAS: Final = "topics"
"""A source with this name would have the topic of ``provenance`` as its positions topic."""
_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_TOPIC: Final = 249


class Naming(StrEnum):
    """How a topic is named at the target: ``a.orders`` or ``orders``."""

    prefix = "prefix"
    identity = "identity"


class OnGap(StrEnum):
    """Reactions to a gap: records of the source that were deleted before they were copied."""

    fail = "fail"
    record = "record"


class Begin(StrEnum):
    """Starting points of a partition without a position."""

    earliest = "earliest"
    latest = "latest"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to connect to. ``alias`` is the source's name in topics; a target may leave it empty."""

    alias: str
    bootstrap_servers: str
    config: ClientConfig = field(default_factory=ClientConfig)


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The settings of one engine. Times in milliseconds."""

    source: Cluster
    target: Cluster
    topics: re.Pattern[str]
    groups: re.Pattern[str] | None = None
    naming: Naming = Naming.prefix
    begin: Begin = Begin.earliest
    on_gap: OnGap = OnGap.fail
    read_committed: bool = True
    instance: str = "0"
    """Names this instance among those that share the work; a restart under the same name takes over at once."""
    sync_configs: bool = True
    sync_acls: bool = False
    sync_schemas: bool = False
    """Copies schemas of the source's registry; then its topic is not copied as such."""
    delete_topics: bool = False
    replication_factor: int = -1
    """The replication factor of topics created at the target; −1 is the target's default."""
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
                f"--source {RESERVED_ALIAS!r}: mirrors use this name for an internal topic; choose another alias"
            )
        if self.source.alias == self.target.alias:
            raise ConfigError(f"--source and --target are both named {self.source.alias!r}; give them different names")

    @property
    def group(self) -> str:
        """The group in which instances share the work; their transactional ids begin with it."""
        return f"oncelog-mirror-{self.source.alias}"

    @property
    def transactional_id(self) -> str:
        return f"{self.group}-{self.instance}"

    def target_name(self, topic: str) -> TopicName:
        """The name of a source topic at the target. Raises ConfigError if it is too long."""
        if self.naming is Naming.identity:
            return TopicName(topic)
        name = f"{self.source.alias}{SEPARATOR}{topic}"
        if len(name) > _LONGEST_TOPIC:
            raise ConfigError(f"topic {topic!r} would be {name!r} at the target, which is longer than 249 characters")
        return TopicName(name)

    def wants(self, topic: str, *, is_internal: bool) -> bool:
        if is_internal or topic.startswith("__") or not self.topics.fullmatch(topic):
            return False
        if self.sync_schemas and topic == SCHEMAS_TOPIC:
            return False
        came_from_target = self.target.alias and topic.startswith(self.target.alias + SEPARATOR)
        return not (came_from_target and self.naming is Naming.prefix)

    def wants_group(self, group: str) -> bool:
        return (
            self.groups is not None and not group.startswith("oncelog-mirror-") and bool(self.groups.fullmatch(group))
        )


def compiled(pattern: str, option: str) -> re.Pattern[str]:
    """An option's regular expression. Raises ConfigError."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{option} {pattern!r} is not a regular expression: {error}") from None


def choice(kind: type[T], text: str | None, default: T, option: str) -> T:
    try:
        return default if text is None else kind(text)
    except ValueError:
        raise ConfigError(f"{option} {text!r} is not one of {', '.join(kind)}") from None
