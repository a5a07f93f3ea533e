"""The groups of a shard; a group's kind is its class."""

from __future__ import annotations

from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.share.group import ShareGroup

AnyGroup = ClassicGroup | ConsumerGroup | ShareGroup
