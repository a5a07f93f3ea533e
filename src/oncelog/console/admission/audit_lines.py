"""Lines of the audit: by whom, from where, by way of the console, and about what, without the content of records.

The rule: a line names its subject by fields that name things (a topic, a group, an id), never by those that carry keys,
values or headers of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.audit_trail import Audit
from oncelog.console.query import LONGEST

NAMING_FIELDS: Final = ("topic", "partition", "name", "id", "start_offset", "directory", "typed")
"""Fields of forms that say what is meant."""


def console_audit(audit: Audit, user: str, address: str) -> Audit:
    """An audit whose entries say who sent a request of this console, and from where."""

    def write(entry: Mapping[str, Any]) -> None:
        audit({**entry, "by": user, "address": address, "via": "console"})

    return write


def naming(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of a form that name its subject, none longer than a parameter may be."""
    return {name: fields[name][:LONGEST] for name in NAMING_FIELDS if fields.get(name)}
