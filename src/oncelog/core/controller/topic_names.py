"""Rules for topic names: allowed ones, and ones that collide in metrics; Apache Kafka's rules and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicName

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC: Final = TopicName("__cluster_metadata")
"""Reserved: in Apache Kafka it is the controller's own log."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_refusal(name: str) -> str | None:
    """The reason why a topic may not have this name, None when it may."""
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
    """True for the broker's internal topics."""
    return name in (CONSUMER_OFFSETS, TRANSACTION_STATE)


def unified(name: str) -> str:
    """The name with ``.`` for ``_``: metrics cannot tell names apart whose unified names are equal."""
    return name.replace("_", ".")


def may_collide(name: str) -> bool:
    """True if the name has a ``.`` or ``_``, which metrics do not tell apart."""
    return "." in name or "_" in name


def collisions(topics: Iterable[TopicName]) -> dict[str, TopicName]:
    """The first topic by unified name, of those that may collide."""
    names_by_form: dict[str, TopicName] = {}
    for name in topics:
        if may_collide(name):
            names_by_form.setdefault(unified(name), name)
    return names_by_form
