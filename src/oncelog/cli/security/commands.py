"""``oncelog security``: files of a secured broker and its clients (``oncelog[security]``), users, ZooKeeper ACLs."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from oncelog.base.notation.shell_words import option
from oncelog.cli.security import users as security_users
from oncelog.cli.security import zookeeper_nodes
from oncelog.cli.support.failures import complain
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_json, print_result
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.security.setup import SetupResult

app = CommandGroup(
    "Make certificates and properties for a secured broker and its clients; add, list and delete users; close nodes "
    "in ZooKeeper."
)
app.add_typer(security_users.app, name="user")
app.command("zookeeper-acl", epilog=zookeeper_nodes.EPILOG)(zookeeper_nodes.zookeeper_acl)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A directory that oncelog security init made.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME", help="A name or address by which clients reach the broker; repeat it."),
]
Days = Annotated[int, typer.Option("--days", min=1, max=3650, help="How long certificates are good for.")]
_DAYS: Final = 397
T = TypeVar("T")


def _done(work: Callable[[], T]) -> T:
    """The result of ``work``; a refusal is printed and ends the command."""
    from oncelog.security.setup import SetupRefused

    try:
        return work()
    except SetupRefused as refusal:
        raise typer.Exit(complain(str(refusal))) from None


@app.command(
    epilog="""
\b
Examples:
  oncelog security init secured && oncelog serve --config secured/server.properties
  oncelog security init /etc/oncelog --host log.example --host 192.0.2.7
"""
)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory, or an empty one.")],
    hosts: Hosts = None,
    port: Annotated[
        int, typer.Option(min=1, max=65534, help="The port for clients; other brokers come by the next one.")
    ] = 9092,
    user: Annotated[str, typer.Option(metavar="NAME", help="The first user, who may do everything.")] = "admin",
    by_certificate: Annotated[
        bool, typer.Option("--mtls", help="Clients log in by certificates (mutual TLS), not by passwords.")
    ] = False,
    days: Days = _DAYS,
    as_json: AsJson = False,
) -> None:
    """Make the files of a broker with TLS, logins and access control lists, and of its first client.

    The broker's certificate is for localhost, 127.0.0.1, ::1, this host's name and every --host. Without --host it
    listens on this machine only. Nothing is overwritten; passwords are random.
    """
    from oncelog.security.setup import SetupRequest, set_up

    request = SetupRequest(tuple(hosts or ()), port, user, by_certificate, datetime.timedelta(days=days))
    made = _done(lambda: set_up(directory, request))
    if as_json:
        print_json(made)
        return
    _print_made(made)


def _print_made(made: SetupResult) -> None:
    width = max(len(file.path) for file in made.files)
    for file in made.files:
        print_line(f"{file.path.ljust(width)}  {file.purpose}")
    print_line()
    print_line(f"The broker's certificate is for {', '.join(made.hosts)}, until {made.expires}.")
    print_line(f"User:{made.user} may do everything, others what access control lists allow them. Next:")
    print_line()
    print_line(f"  oncelog serve {option('--config', f'{made.directory}/server.properties')}")
    print_line(f"  oncelog topic list {option('--command-config', f'{made.directory}/client.properties')}")


@app.command(
    epilog="""
\b
Examples:
  oncelog security renew /etc/oncelog
"""
)
def renew(directory: Directory, hosts: Hosts = None, days: Days = _DAYS, as_json: AsJson = False) -> None:
    """Give the broker a new key and certificate of the same authority; one that runs takes it up without a restart.

    Its names are those it has, unless --host names others.
    """
    from oncelog.security.setup import renew as renew_certificate

    facts = _done(lambda: renew_certificate(directory, tuple(hosts or ()), datetime.timedelta(days=days)))
    done = f"renewed for {', '.join(facts.hosts)}, until {facts.expires:%Y-%m-%d}"
    print_result(done, {"hosts": facts.hosts, "expires": facts.expires.isoformat()}, as_json=as_json)


@app.command(
    epilog="""
\b
Examples:
  oncelog security client /etc/oncelog billing
"""
)
def client(
    directory: Directory,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name; its principal is User:NAME.")],
    days: Days = _DAYS,
    as_json: AsJson = False,
) -> None:
    """Make a certificate for another client, with its key, in DIR/NAME.pem."""
    from oncelog.security.setup import issue_client

    path = _done(lambda: issue_client(directory, name, datetime.timedelta(days=days)))
    done = f"{path}: the key and certificate of User:{name}"
    print_result(done, {"path": str(path), "principal": f"User:{name}"}, as_json=as_json)
