"""Differences from Apache Kafka's answers that are allowed beside those of the golden corpus, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.conformance.golden.exceptions import leave_out_what_cannot_agree


def adapt(api: str, recorded: Any, ours: Any) -> None:
    """Take from both answers what the two brokers cannot have in common."""
    leave_out_what_cannot_agree(api, recorded, ours)
    for answer in (recorded, ours):
        if api == "DescribeAcls":
            answer.resources.sort(
                key=lambda resource: (resource.resource_type, resource.resource_name, resource.pattern_type)
            )
            for resource in answer.resources:
                resource.acls = [Entries(acls=sorted(map(_entry, resource.acls)))]
        elif api == "DeleteAcls":
            for result in answer.filter_results:
                result.matching_acls = [Entries(acls=sorted(map(_entry, result.matching_acls)))]


@dataclass
class Entries:
    """Entries without an order, which no broker promises."""

    acls: list[tuple[Any, ...]]


def _entry(acl: Any) -> tuple[Any, ...]:
    return tuple(str(getattr(acl, name)) for name in acl.__slots__)
