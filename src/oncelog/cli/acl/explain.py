"""``oncelog acl explain``: which operations a principal may use on a resource, why, and the command that changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.acl_rules import Reason
from oncelog.base.acls import AclBinding, AclEntry, PatternType, Permission, ResourcePattern
from oncelog.cli.acl.options import (
    Host,
    ResourceOptions,
    check_operations,
    command_for,
    operation_of,
    principal_of,
    print_acls,
    word,
)
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_table
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.admin.acls import Decision, Explanation
    from oncelog.client.blocking.client import Client

ANONYMOUS = "User:ANONYMOUS"


def explain(
    resource: ResourceOptions = ResourceOptions(),
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="NAME", help="The user that asks; default: the user that logs in here."),
    ] = None,
    host: Host = None,
    operation: Annotated[
        list[str] | None, typer.Option("--operation", "-o", metavar="NAME", help="May be repeated; default: all.")
    ] = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Say what a principal may do to a resource, which entry decides, and what to add where nothing allows it.

    The exit code is 1 if an operation that was named with --operation is not allowed.

    \b
    Examples:
      oncelog acl explain --topic orders
      oncelog acl explain --topic orders --principal alice --operation read --host 10.0.0.7
      oncelog acl explain --cluster --principal broker --json
    """
    from oncelog.admin import acls

    pattern = resource.single()
    operations = [operation_of(name) for name in operation or ()]
    check_operations([pattern], operations)
    with cluster.open_client() as client:
        who = _own_principal(client) if principal is None else principal_of(principal)
        explanation = acls.explain(client, pattern.resource_type, pattern.name, who, host or "*", operations)
    if cluster.as_json:
        print_json(explanation)
    else:
        _print(explanation)
    if operations and not all(decision.allowed for decision in explanation.decisions):
        raise typer.Exit(1)


def _own_principal(client: Client) -> str:
    """The principal that this client's settings log in as, under the brokers' default principal builder."""
    security = client.config.security
    if security is not None and security.sasl is not None and security.sasl.username:
        return f"User:{security.sasl.username}"
    return ANONYMOUS


def _print(explanation: Explanation) -> None:
    origin = "" if explanation.host == "*" else f" from {explanation.host}"
    print_line(f"{explanation.principal}{origin} on {word(explanation.resource_type)} {explanation.name}:")
    print_table(
        ("operation", "allowed", "because"),
        [
            (word(decision.operation), "yes" if decision.allowed else "no", _because(decision))
            for decision in explanation.decisions
        ],
    )
    missing = [decision for decision in explanation.decisions if not decision.allowed]
    if missing:
        print_line()
        print_line("To allow it:" if len(missing) == 1 else "To allow one of them:")
        for decision in missing:
            print_line(f"  {_remedy(explanation, decision)}")
    if explanation.lists:
        print_line()
        print_line("All entries for it:")
        print_acls(explanation.lists)
    if explanation.host == "*" and any(entry.host != "*" for _, entry in explanation.lists):
        print_line()
        print_line("Entries for single hosts count only with --host.")
    if explanation.super_users is None:
        print_line()
        print_line("The brokers do not tell who their super users are: these may do everything.")


def _because(decision: Decision) -> str:
    if decision.reason is Reason.SUPER_USER:
        return "a super user may do everything"
    if decision.reason is Reason.DEFAULT_ALLOW:
        return "no ACL is for it, and allow.everyone.if.no.acl.found is true"
    if decision.acl is None:
        return "no ACL allows it"
    pattern, entry = decision.acl
    name = f"{pattern.name}…" if word(pattern.pattern_type) == "prefixed" else pattern.name
    verb = "is allowed" if decision.allowed else "is denied"
    place = "" if entry.host == "*" else f" from {entry.host}"
    return f"{entry.principal}{place} {verb} {word(entry.operation)} on {word(pattern.resource_type)} {name}"


def _remedy(explanation: Explanation, decision: Decision) -> str:
    """The command that allows the operation: removes the entry that denies it, or adds one that allows it."""
    if decision.acl is not None:
        return command_for("remove", decision.acl)
    pattern = ResourcePattern(explanation.resource_type, PatternType.LITERAL, explanation.name)
    return command_for(
        "allow", AclBinding(pattern, AclEntry(explanation.principal, "*", decision.operation, Permission.ALLOW))
    )
