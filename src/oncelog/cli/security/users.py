"""``oncelog security user``: users with SCRAM passwords, on any cluster.

A password is never an argument, because every user of the host can see arguments.
"""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_result, print_rows
from oncelog.cli.support.terminal import ask_password, print_line

app = CommandGroup("Add, list and delete users that log in by a password (SCRAM).")


class Mechanism(Enum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


_MAX_PASSWORD_BYTES: Final = 4096


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user; User:NAME in access control lists.")],
    mechanisms: Annotated[
        list[Mechanism] | None,
        typer.Option("--mechanism", help="A mechanism it may log in by; may be repeated. [default: both]"),
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(
            min=4096,
            max=16384,
            metavar="N",
            help="Iterations of the hash; more make a stolen credential harder to use.",
        ),
    ] = 8192,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file whose first line is the password; '-': stdin.")
    ] = None,
    password_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="An environment variable that holds the password.")
    ] = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Add a user, or change a user's password; asks for it, unless a file or the environment has it.

    The user may do nothing until access control lists allow it something: oncelog acl allow.

    \b
    Examples:
      oncelog security user add alice
      oncelog security user add billing --password-file /run/secrets/billing
      BILLING_PASSWORD=… oncelog security user add billing --password-env BILLING_PASSWORD --mechanism SCRAM-SHA-512
    """
    from oncelog.admin.scram_users import list_credentials, set_password

    names = [mechanism.value for mechanism in mechanisms or Mechanism]
    password = _password(name, password_file, password_env)
    with cluster.open_client() as client:
        set_password(client, name, password, names, iterations)
        rows = list_credentials(client, [name])
    done = f"User:{name} logs in by {' and '.join(row.mechanism for row in rows)}"
    print_result(done, rows, as_json=cluster.as_json)


@app.command("list")
def list_(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="List these users only.")] = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """List users and the mechanisms by which they log in; nothing that is secret.

    \b
    Examples:
      oncelog security user list
      oncelog security user list alice billing --json
    """
    from oncelog.admin.scram_users import list_credentials

    with cluster.open_client() as client:
        rows = list_credentials(client, names or None)
    print_rows(("user", "mechanism", "iterations"), rows, rows, as_json=cluster.as_json)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="The users.")],
    mechanisms: Annotated[
        list[Mechanism] | None,
        typer.Option(
            "--mechanism", help="Delete the credential of this mechanism only; may be repeated. [default: all]"
        ),
    ] = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Delete users. Connections that are there stay until they log in again (connections.max.reauth.ms); their entries
    in access control lists stay, too.

    \b
    Examples:
      oncelog security user delete alice
      oncelog security user delete alice --mechanism SCRAM-SHA-256
    """
    from oncelog.admin.scram_users import delete_credentials, list_credentials

    only = {mechanism.value for mechanism in mechanisms or Mechanism}
    with cluster.open_client() as client:
        credentials = [row for row in list_credentials(client, names) if row.mechanism in only]
        unknown = sorted(set(names) - {row.user for row in credentials})
        if unknown:
            raise typer.BadParameter(f"no credential of {', '.join(unknown)}; nothing was deleted", param_hint="NAME")
        for row in credentials:
            delete_credentials(client, row.user, [row.mechanism])
    if cluster.as_json:
        print_json(credentials)
        return
    for row in credentials:
        print_line(f"deleted: User:{row.user} by {row.mechanism}")


def _password(name: str, file: Path | None, variable: str | None) -> str:
    """Raises BadParameter."""
    if file is not None and variable is not None:
        raise typer.BadParameter("give --password-file or --password-env, not both", param_hint="--password-env")
    if variable is not None:
        hint, password = "--password-env", os.environ.get(variable, "")
    elif file is not None:
        hint, password = "--password-file", _first_line(file)
    elif sys.stdin.isatty():
        hint = "password"
        password = ask_password(f"Password of {name}")
    else:
        raise typer.BadParameter(
            "there is no terminal to ask for the password; give it with --password-file or --password-env"
        )
    if not password:
        raise typer.BadParameter("the password is empty; give at least one character", param_hint=hint)
    return str(password)


def _first_line(file: Path) -> str:
    try:
        if str(file) == "-":
            data = sys.stdin.readline(_MAX_PASSWORD_BYTES + 1)
        else:
            with file.open(encoding="utf-8") as opened:
                data = opened.readline(_MAX_PASSWORD_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise typer.BadParameter(f"cannot read {file}: {reason}", param_hint="--password-file") from None
    if len(data) > _MAX_PASSWORD_BYTES:
        raise typer.BadParameter(
            f"the first line of {file} has more than {_MAX_PASSWORD_BYTES} characters; choose a shorter password",
            param_hint="--password-file",
        )
    return data.rstrip("\r\n")
