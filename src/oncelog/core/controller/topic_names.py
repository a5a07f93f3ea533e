"""Rules for topic names: valid characters, and collisions in metrics; Apache Kafka's rules and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oncelog.base.ids import INTERNAL_TOPICS, TopicName

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC: Final = TopicName("__cluster_metadata")
"""Reserved: Apache Kafka's controller log."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_refusal(name: str) -> str | None:
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def is_internal(name: str | None) -> bool:
    return name in INTERNAL_TOPICS


def unified(name: str) -> str:
    """Metrics cannot tell apart names that are equal in this form."""
    return name.replace("_", ".")


def may_collide(name: str) -> bool:
    return "." in name or "_" in name


def collisions(topics: Iterable[TopicName]) -> dict[str, TopicName]:
    """The first topic of each unified name that may collide."""
    names_by_form: dict[str, TopicName] = {}
    for name in topics:
        if may_collide(name):
            names_by_form.setdefault(unified(name), name)
    return names_by_form
