"""Audited changes of access: entries of access control lists, SCRAM users, quotas; the rule is that of
``audited_changes``. Passwords are in no line of the audit log."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.admin.acls import AclFilter, create_acls, delete_acls, list_acls
from oncelog.admin.client_quotas import Entity, alter_quotas, entity_text, quotas_of
from oncelog.admin.scram_users import Credential, delete_credentials, list_credentials, set_password
from oncelog.base.acls import AclBinding
from oncelog.client.blocking.client import Client
from oncelog.console.admission.audit_lines import FOR_USER
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, confirmed
from oncelog.console.query import NotConfirmed


def has_acl(client: Client, binding: AclBinding) -> bool:
    """True if the cluster has exactly this entry."""
    pattern, entry = binding
    same = AclFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )
    return binding in list_acls(client, same)


def add_acl(client: Client, permit: Permit, changes: Changes, binding: AclBinding, typed: str) -> None:
    confirmed(typed, binding.entry.principal, "principal")
    if has_acl(client, binding):
        raise NotConfirmed("the entry exists by now. Nothing was done")
    changes.noted(permit, "add-acl", _acl_line(binding), lambda: create_acls(client, [binding]))


def remove_acl(client: Client, permit: Permit, changes: Changes, binding: AclBinding, typed: str) -> None:
    confirmed(typed, binding.entry.principal, "principal")
    if not has_acl(client, binding):
        raise NotConfirmed("the entry does not exist any more. Nothing was done")
    changes.noted(permit, "remove-acl", _acl_line(binding), lambda: delete_acls(client, [binding]))


def acl_details(binding: AclBinding) -> dict[str, str]:
    pattern, entry = binding
    return {
        "resource_type": pattern.resource_type.name,
        "resource": pattern.name,
        "pattern": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }


def _acl_line(binding: AclBinding) -> dict[str, str]:
    # In a line "host" is the console's machine.
    return {"from_host" if name == "host" else name: text for name, text in acl_details(binding).items()}


def credential_of(client: Client, user: str, mechanism: str) -> Credential | None:
    rows = list_credentials(client, [user])
    return next((row for row in rows if row.mechanism == mechanism), None)


def credential_text(credential: Credential | None) -> str:
    return "none" if credential is None else f"{credential.iterations} iterations"


def set_user(
    client: Client, permit: Permit, changes: Changes, new: Credential, password: str, was: str, typed: str
) -> None:
    """Set the password of a user for one mechanism. Raises NotConfirmed if the credential shown has changed."""
    confirmed(typed, new.user, "user")
    _unchanged(credential_text(credential_of(client, new.user, new.mechanism)), was)
    details = {FOR_USER: new.user, "mechanism": new.mechanism, "iterations": new.iterations, "from": was}
    changes.noted(
        permit,
        "set-scram-user",
        details,
        lambda: set_password(client, new.user, password, [new.mechanism], new.iterations),
    )


def remove_user(client: Client, permit: Permit, changes: Changes, user: str, mechanism: str, typed: str) -> None:
    confirmed(typed, user, "user")
    if credential_of(client, user, mechanism) is None:
        raise NotConfirmed(f"user {user!r} has no credential for {mechanism} any more. Nothing was done")
    details = {FOR_USER: user, "mechanism": mechanism}
    changes.noted(permit, "remove-scram-user", details, lambda: delete_credentials(client, user, [mechanism]))


def quota_text(values: Mapping[str, float], key: str) -> str:
    return f"{values[key]:.15g}" if key in values else "none"


def check_quota(client: Client, entity: Entity, key: str, value: float | None) -> None:
    """Have the broker validate a quota without setting it; None removes it. Raises BrokerRefused."""
    _alter(client, entity, key, value, validate_only=True)


def set_quota(
    client: Client,
    permit: Permit,
    changes: Changes,
    entity: Entity,
    key: str,
    value: float | None,
    was: str,
    typed: str,
) -> None:
    """Set one quota of an entity; None removes it. Raises NotConfirmed if the quota shown has changed."""
    confirmed(typed, typed_name(entity), "entity")
    _unchanged(quota_text(quotas_of(client, entity), key), was)
    details = {"entity": entity_text(entity), "key": key, "from": was, "to": "none" if value is None else value}
    changes.noted(permit, "set-quota", details, lambda: _alter(client, entity, key, value))


def typed_name(entity: Entity) -> str:
    """The text that confirms a change of an entity: its first name, or the kind of a default."""
    return next((name for _, name in entity if name is not None), f"default {entity[0][0]}")


def _alter(client: Client, entity: Entity, key: str, value: float | None, *, validate_only: bool = False) -> None:
    alter_quotas(
        client,
        entity,
        change={} if value is None else {key: value},
        delete=[key] if value is None else [],
        validate_only=validate_only,
    )


def _unchanged(now: str, was: str) -> None:
    if now != was:
        raise NotConfirmed(f"it is now {now}, but was {was} when the change was shown. Nothing was done")
