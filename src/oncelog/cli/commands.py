"""The ``oncelog`` command: a table of sub-commands, each imported only when it runs.

``oncelog --help`` and ``oncelog serve`` import no other sub-command, and help never imports rich. An expected failure
prints one line on stderr and exits with 1, a usage error with 2; Ctrl-C, SIGTERM and SIGHUP print nothing and exit with
130, with 0 where a server runs until then. A closed pipe (``| head``) is no failure.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from oncelog.cli.support.failures import ClickException, exit_code_of
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.terminal import print_line


class SubCommand(NamedTuple):
    """A sub-command's module (a typer app or a command function) and its line in the help."""

    target: str
    summary: str


COMMANDS: Final[dict[str, SubCommand]] = {
    "serve": SubCommand("oncelog.cli.processes.serve:serve", "Run a broker."),
    "topic": SubCommand("oncelog.cli.topic.commands:app", "Create, list, describe, alter, move and delete topics."),
    "cluster": SubCommand("oncelog.cli.cluster.app:app", "Run a cluster here, look at one, take brokers out of it."),
    "produce": SubCommand("oncelog.cli.records.produce:produce", "Write records from stdin or files to a topic."),
    "consume": SubCommand("oncelog.cli.records.consume:consume", "Print the records of a topic."),
    "group": SubCommand("oncelog.cli.group.commands:app", "List, describe, reset and delete consumer groups."),
    "explain": SubCommand(
        "oncelog.cli.txn.explain:app", "Explain why a cluster, group, topic, producer or transaction is stuck."
    ),
    "console": SubCommand("oncelog.cli.processes.console:console", "Serve a web console (needs oncelog[console])."),
    "registry": SubCommand(
        "oncelog.cli.registry.commands:app", "Serve a schema registry, export and import it (needs oncelog[registry])."
    ),
    "mirror": SubCommand(
        "oncelog.cli.mirror.app:app", "Copy topics and groups of clusters into another, exactly once."
    ),
    "acl": SubCommand("oncelog.cli.acl.commands:app", "List, allow, deny, remove and explain access control lists."),
    "security": SubCommand(
        "oncelog.cli.security.commands:app",
        "Make the files of a secured broker (needs oncelog[security]); add and delete users.",
    ),
    "txn": SubCommand("oncelog.cli.txn.app:app", "Find, explain and end hanging transactions."),
    "log": SubCommand(
        "oncelog.cli.log.commands:app", "Look into data directories, offline; import those of Kafka 0.7."
    ),
    "sim": SubCommand("oncelog.cli.sim:sim", "Run the broker in a simulator, with faults drawn by seed."),
    "load": SubCommand("oncelog.cli.table.load:load", "Load topics into tables, exactly once (needs oncelog[spark])."),
    "audit": SubCommand("oncelog.cli.log.audit:audit", "Audit log directories, any Kafka's (needs oncelog[spark])."),
    "stream": SubCommand(
        "oncelog.cli.table.stream:stream", "Load topics into tables continuously (needs oncelog[spark])."
    ),
    "export": SubCommand(
        "oncelog.cli.table.export:export", "Write a table into a topic, exactly once (needs oncelog[spark])."
    ),
    "compact": SubCommand(
        "oncelog.cli.table.compact:compact", "Make larger files of a table's small ones (needs oncelog[spark])."
    ),
}


class LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """All names; imports none."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Imports a sub-command; None for an unknown name."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else load_command(cmd_name, entry.target)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolves a sub-command as typer does, and suggests names for a mistyped one."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            close = get_close_matches(args[0], COMMANDS)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(COMMANDS)}"
            ctx.fail(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table of sub-commands, from the summaries here."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


def load_command(name: str, target: str) -> Any:
    """The command object behind ``module:attribute``."""
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    entry_point = getattr(module, attribute)
    if not isinstance(entry_point, typer.Typer):
        single = CommandGroup()
        single.command(name=name, epilog=getattr(module, "EPILOG", None))(entry_point)
        entry_point = single
    command = typer.main.get_command(entry_point)
    command.name = name
    return command


app = typer.Typer(
    cls=LazyGroup,
    name="oncelog",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(enabled: bool) -> None:
    if enabled:
        from oncelog import __version__

        print_line(f"oncelog {__version__}")
        raise typer.Exit


@app.callback()
def _oncelog(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A commit log that speaks the Kafka protocol.

    The commands other than serve work against any Kafka cluster; name it with --bootstrap-server or in
    ONCELOG_BOOTSTRAP_SERVERS (default: localhost:9092).

    \b
    Examples:
      oncelog serve --data-dir ./data
      oncelog topic create flights --partitions 6
      seq 10 | oncelog produce flights
      oncelog consume flights --from beginning --exit
    """


def run_command(arguments: Sequence[str]) -> int:
    """Runs a command line and returns the exit code. Expected failures are printed to stderr."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("oncelog", list(arguments)) as context:
            command.invoke(context)
            sys.stdout.flush()
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  # sorted out there, bugs are raised again
        if isinstance(error, ClickException) and getattr(error, "ctx", error) is None:
            error.ctx = _context_of(command, arguments)  # type: ignore[attr-defined]
        return exit_code_of(error)
    return 0


def _context_of(command: Any, arguments: Sequence[str]) -> typer.Context:
    """The context of the named sub-command: click does not say which command's option lacks its argument."""
    context = typer.Context(command, info_name="oncelog")
    for argument in arguments:
        command = command.get_command(context, argument) if isinstance(command, TyperGroup) else None
        if command is None:
            break
        context = typer.Context(command, parent=context, info_name=argument)
    return context
