"""``oncelog acl``: list, allow, deny, remove and explain access control lists, on any cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.acls import AclBinding, AclEntry, PatternType, Permission
from oncelog.cli.acl.explain import explain
from oncelog.cli.acl.options import (
    Host,
    PatternOptions,
    Principal,
    check_operations,
    operation_of,
    principal_of,
    print_acls,
)
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.admin.acls import AclFilter

app = CommandGroup("List, allow, deny, remove and explain access control lists.")

Who = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="User:alice, or alice for short; '*': everybody.")]
What = Annotated[list[str], typer.Argument(metavar="OPERATION…", help="read, write, describe, …, or all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the entries, make none.")]


@app.command("list")
def list_(
    resources: PatternOptions = PatternOptions(),
    principal: Principal = None,
    match: Annotated[bool, typer.Option("--match", help="All lists for that name, prefixes and '*' too.")] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """List the entries of all resources, or of some.

    \b
    Examples:
      oncelog acl list
      oncelog acl list --topic orders --match
      oncelog acl list --principal alice --json
    """
    from oncelog.admin.acls import list_acls

    with cluster.open_client() as client:
        bindings = [
            binding for filter_ in _filters(resources, principal, match=match) for binding in list_acls(client, filter_)
        ]
    if cluster.as_json:
        print_json(bindings)
    else:
        print_acls(bindings)


@app.command()
def allow(
    principal: Who,
    operations: What,
    resources: PatternOptions = PatternOptions(),
    host: Host = None,
    dry_run: DryRun = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Allow a principal to do something.

    \b
    Examples:
      oncelog acl allow alice read --topic orders --group billing
      oncelog acl allow alice write describe --topic eu- --prefix --host 10.0.0.7
      oncelog acl allow app write --transactional-id app- --prefix
    """
    _make(_entries(resources, principal, operations, host, Permission.ALLOW), cluster, dry_run)


@app.command()
def deny(
    principal: Who,
    operations: What,
    resources: PatternOptions = PatternOptions(),
    host: Host = None,
    dry_run: DryRun = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Deny a principal something, whatever else allows it.

    \b
    Examples:
      oncelog acl deny mallory all --topic '*'
      oncelog acl deny '*' delete --topic orders
    """
    _make(_entries(resources, principal, operations, host, Permission.DENY), cluster, dry_run)


@app.command()
def remove(
    resources: PatternOptions = PatternOptions(),
    principal: Principal = None,
    host: Host = None,
    operation: Annotated[
        str | None, typer.Option("--operation", metavar="NAME", help="Remove entries for this operation only.")
    ] = None,
    allow: Annotated[bool, typer.Option("--allow", help="Only entries that allow.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Only entries that deny.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove them; without it they are only shown.")] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Remove entries. Shows them first; only --yes removes.

    \b
    Examples:
      oncelog acl remove --topic orders --principal alice
      oncelog acl remove --principal mallory --allow --yes
    """
    from oncelog.admin.acls import delete_acls, list_acls

    if not resources.named() and principal is None:
        raise typer.BadParameter("name a resource or a --principal; access control lists are not all removed at once")
    if allow and deny:
        raise typer.BadParameter("give --allow or --deny, not both; without either both are meant")
    kept = operation_of(operation) if operation is not None else None
    with cluster.open_client() as client:
        bindings = [
            binding
            for filter_ in _filters(resources, principal, match=False)
            for binding in list_acls(client, filter_)
            if (kept is None or binding.entry.operation is kept)
            and host in (None, binding.entry.host)
            and not (allow and binding.entry.permission.name == "DENY")
            and not (deny and binding.entry.permission.name == "ALLOW")
        ]
        removed = delete_acls(client, bindings) if yes and bindings else []
    if cluster.as_json:
        print_json({"found": bindings, "removed": removed})
        return
    print_acls(removed if yes else bindings)
    if bindings and not yes:
        print_line("oncelog: nothing was removed; --yes does it", err=True)


def _filters(resources: PatternOptions, principal: str | None, *, match: bool) -> list[AclFilter]:
    from oncelog.admin.acls import AclFilter

    who = None if principal is None else principal_of(principal)
    return [
        AclFilter(pattern.resource_type, pattern.name, PatternType.MATCH if match else pattern.pattern_type, who)
        for pattern in resources.named()
    ] or [AclFilter(principal=who)]


def _entries(
    resources: PatternOptions, principal: str, operations: list[str], host: str | None, permission: Permission
) -> list[AclBinding]:
    patterns = resources.required()
    parsed = [operation_of(name) for name in operations]
    check_operations(patterns, parsed)
    who = principal_of(principal)
    return [
        AclBinding(pattern, AclEntry(who, host or "*", operation, permission))
        for pattern in patterns
        for operation in parsed
    ]


def _make(bindings: list[AclBinding], cluster: AdminOptions, dry_run: bool) -> None:
    from oncelog.admin.acls import create_acls

    if not dry_run:
        with cluster.open_client() as client:
            create_acls(client, bindings)
    if cluster.as_json:
        print_json(bindings)
        return
    print_acls(bindings)
    if dry_run:
        print_line("oncelog: nothing was made", err=True)


app.command("explain")(explain)
