"""``oncelog security zookeeper-acl``: closes or opens a cluster's existing nodes in ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.text import counted
from oncelog.cli.support.failures import complain
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_result
from oncelog.cli.support.properties_file import PropertiesError, read_properties_file
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.node.listeners.broker_settings import BrokerConfig

EPILOG = """
\b
Examples:
  oncelog security zookeeper-acl --config server.properties
  oncelog security zookeeper-acl --config server.properties --open
"""


def zookeeper_acl(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The brokers' server.properties: ZooKeeper, TLS and login.")
    ],
    open_: Annotated[
        bool, typer.Option("--open", help="Open the nodes to everybody, those with credentials too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give the nodes of a cluster in ZooKeeper the ACLs that zookeeper.set.acl=true gives to new ones.

    First let all brokers log in (TLS certificate, SASL or digest), then have zookeeper.set.acl=true, one broker after
    the other; then run this with the same file. Everybody still reads the nodes, but for those that hold credentials;
    those of consumers stay everybody's. To go back, let all brokers have zookeeper.set.acl=false, run this with --open,
    and take their logins away last. Brokers may go on running; interrupted, it is run again.
    """
    from oncelog.node.listeners.broker_settings import ConfigError, StoreUnusable
    from oncelog.ports import SessionLost, TreeUnavailable

    settings, connect = _read(config, open_)
    try:
        from oncelog.runtime.data.zookeeper_tree import apply_node_acls
    except ModuleNotFoundError:
        raise typer.BadParameter("kazoo is not installed: pip install 'oncelog[cluster]'") from None
    try:
        count = apply_node_acls(settings, connect, int(settings.get("zookeeper.session.timeout.ms")), _show_progress)
    except (ConfigError, StoreUnusable) as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None
    except (SessionLost, TreeUnavailable) as error:
        raise typer.Exit(complain(f"{error}; some nodes may have been changed: run the command again")) from None
    nodes = f"{counted(count, 'node')} at {connect}"
    done = f"opened {nodes} to everybody" if open_ else f"closed {nodes}: only their owner may change them now"
    document = {"connect": connect, "nodes": count, "acl": "open" if open_ else "owner"}
    print_result(done, document, as_json=as_json)


def _read(path: Path, open_: bool) -> tuple[BrokerConfig, str]:
    """The brokers' configuration and the place of their tree. Raises BadParameter."""
    from oncelog.node.listeners.broker_settings import BrokerConfig, ConfigError
    from oncelog.runtime.security.config_providers import resolve_references

    try:
        config = BrokerConfig(resolve_references(read_properties_file(path)))
    except (PropertiesError, ConfigError) as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None
    connect = config.get("zookeeper.connect")
    if connect is None:
        raise typer.BadParameter(
            f"{path} has no zookeeper.connect; name the properties of a broker that uses ZooKeeper",
            param_hint="--config",
        )
    closes = bool(config.get("zookeeper.set.acl"))
    if closes and open_:
        raise typer.BadParameter(
            f"{path} has zookeeper.set.acl=true: brokers would close what they create; set it to false on all of them "
            "first",
            param_hint="--open",
        )
    if not closes and not open_:
        raise typer.BadParameter(
            f"{path} does not have zookeeper.set.acl=true: set it on all brokers first, or open the nodes with --open",
            param_hint="--config",
        )
    return config, str(connect)


def _show_progress(done: int) -> None:
    print_line(f"oncelog: {done:,} nodes", err=True)
