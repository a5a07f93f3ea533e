"""Lines of the audit log with the user, the address and the subject of a request, and without record content.

Only fields that name things (a topic, a group, an id) identify the subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.audit_trail import Audit
from oncelog.console.query import MAX_PARAMETER_LENGTH

# Form fields that identify the subject of a change.
NAMING_FIELDS: Final = (
    *("topic", "partition", "name", "id", "start_offset", "directory", "principal", "resource"),
    *("user", "mechanism", "client_id", "ip", "typed"),
)
FOR_USER: Final = "for_user"  # In a line "user" is who runs the console.
SECRET_FIELDS: Final = ("password", "repeated")


def console_audit(audit: Audit, user: str, address: str) -> Audit:
    """An audit log that adds the user and the address of a request to every entry."""

    def write(entry: Mapping[str, Any]) -> None:
        audit({**entry, "by": user, "address": address, "via": "console"})

    return write


def of_cluster(audit: Audit, cluster: str) -> Audit:
    """An audit log that adds the name of the cluster to every entry; without a name, the same one."""
    if not cluster:
        return audit

    def write(entry: Mapping[str, Any]) -> None:
        audit({**entry, "cluster": cluster})

    return write


def naming(fields: Mapping[str, str]) -> dict[str, str]:
    """The form fields that identify the subject, each cut to a parameter's length."""
    # A password may have been typed as the confirmation.
    secrets = [fields[name] for name in SECRET_FIELDS if name in fields]
    return {
        FOR_USER if name == "user" else name: fields[name][:MAX_PARAMETER_LENGTH]
        for name in NAMING_FIELDS
        if fields.get(name) and fields[name] not in secrets
    }
