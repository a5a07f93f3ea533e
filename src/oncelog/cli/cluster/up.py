"""``oncelog cluster up``: runs several brokers on this machine, in the foreground."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.base.text import counted
from oncelog.cli.support.options import ClusterOptions, directory, key_values, settings_in
from oncelog.cli.support.output import print_json_line
from oncelog.cli.support.terminal import print_line
from oncelog.client.errors import ClientError

if TYPE_CHECKING:
    from oncelog.cli.cluster.processes import BrokerPlan, BrokerProcesses, Ended

DEFAULT_DIRECTORY: Final = Path("oncelog-cluster")
DEFAULT_PORT: Final = 9092
_MOST: Final = 100
_JOIN_S: Final = 60.0
_POLL_S: Final = 0.02


def up(
    brokers: Annotated[
        int, typer.Option("--brokers", "-n", metavar="COUNT", min=1, max=_MOST, help="Number of brokers.")
    ] = 3,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            parser=directory,
            help="Directory for the data of all brokers; created if missing.",
        ),
    ] = DEFAULT_DIRECTORY,
    base_port: Annotated[
        int,
        typer.Option(
            "--base-port", metavar="PORT", min=0, max=65535 - _MOST, help="Port of the first broker; 0 takes free ones."
        ),
    ] = DEFAULT_PORT,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A properties file for all brokers, as server.properties."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting of all brokers; wins over --config."),
    ] = None,
    security: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="TLS, logins and ACLs by the files of oncelog security init DIR; made if missing."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when they are up.")] = False,
) -> None:
    """Run a cluster of brokers on this machine until Ctrl-C or SIGTERM: a process each, on loopback.

    Prints their addresses on one line when all have joined. Topics get three replicas (with fewer brokers: as many),
    and with three brokers acks=all needs two of them; --set default.replication.factor and min.insync.replicas change
    it. A broker that ends is reported, and not started again: `oncelog serve --config DIR/broker-2.properties`
    brings it back. With --security clients log in as DIR/client.properties says, and brokers reach each other by
    certificates, on ports behind those for clients. The brokers' logs are in DIR/broker-1.log and so on.

    \b
    Examples:
      oncelog cluster up
      oncelog cluster up --brokers 3 --data-dir /var/lib/oncelog --base-port 19092
      oncelog cluster up --security secured   # clients: --command-config secured/client.properties
      oncelog cluster up -n 3 --base-port 0 --json --set log.retention.hours=24
    """
    from oncelog.cli.cluster.configuration import PLAINTEXT, plan_brokers, secured

    settings, client = _settings(brokers, config, set_), None
    listeners: tuple[str, ...] = (PLAINTEXT,)
    if security is not None:
        base, listeners = secured(security.absolute(), base_port or DEFAULT_PORT)
        settings, client = base | settings, security.absolute() / "client.properties"
    plans = plan_brokers(data_dir.absolute(), brokers, base_port, settings, listeners)
    raise typer.Exit(_run(plans, client, as_json))


def _run(plans: list[BrokerPlan], client: Path | None, as_json: bool) -> int:
    """Runs the brokers until all have ended or a signal arrives. Returns the exit code. ``client``: how to connect to
    them."""
    from oncelog.cli.cluster.processes import BrokerProcesses

    with BrokerProcesses() as processes:
        try:
            for plan in plans:
                processes.start(plan)
            addresses = _wait_ready(processes, plans, client)
            _tell(processes, plans, addresses, as_json)
            _watch(processes, plans)
        except KeyboardInterrupt:
            return _end(processes)
    return 1


def _settings(brokers: int, config: Path | None, set_: list[str] | None) -> dict[str, str]:
    """The settings that all brokers share. Raises BadParameter for keys that this command sets itself."""
    from oncelog.cli.cluster.configuration import OURS, defaults

    given = {} if config is None else settings_in(config, "--config")
    for key, value in key_values(set_, "--set").items():
        given[key.strip()] = value.strip()
        if len(f"{key}{value}".splitlines()) > 1:
            raise typer.BadParameter(
                f"the value of {key} has more than one line; give it in one line", param_hint="--set"
            )
    for key in OURS:
        if key in given:
            raise typer.BadParameter(f"{key} is set for each broker by cluster up; leave it out", param_hint="--set")
    return defaults(brokers) | given


def _wait_ready(processes: BrokerProcesses, plans: list[BrokerPlan], client: Path | None) -> dict[int, str]:
    """The addresses of all brokers once each of them has all addresses. Raises Exit(1) when a broker ends first."""
    from oncelog.cli.cluster.processes import Ended

    addresses: dict[int, str] = {}

    def wait_for_next() -> None:
        event = processes.next_event()
        if isinstance(event, Ended):
            _tell_end(event, plans)
            processes.stop()
            raise typer.Exit(1)
        addresses[event.broker_id] = event.address

    while len(addresses) < len(plans):
        wait_for_next()
    deadline = time.monotonic() + _JOIN_S
    for address in addresses.values():
        while not _knows_all(address, addresses, client):
            if len(processes.running()) < len(plans):
                wait_for_next()
            if time.monotonic() > deadline:
                _say(f"the broker at {address} does not know all {len(plans)} brokers after {_JOIN_S:.0f} s")
                processes.stop()
                raise typer.Exit(1)
            time.sleep(_POLL_S)
    return dict(sorted(addresses.items()))


def _knows_all(address: str, addresses: dict[int, str], config: Path | None) -> bool:
    from oncelog.admin.cluster import registered_brokers

    try:
        with ClusterOptions(address, command_config=config).open_client() as client:
            registered = {
                broker.broker_id: f"{broker.host}:{broker.port}"
                for broker in registered_brokers(client)
                if not broker.is_fenced
            }
    except ClientError:
        return False
    return registered.items() >= addresses.items()


def _tell(processes: BrokerProcesses, plans: list[BrokerPlan], addresses: dict[int, str], as_json: bool) -> None:
    bootstrap = ",".join(addresses.values())
    if as_json:
        rows = [
            {
                "broker_id": plan.broker_id,
                "address": addresses[plan.broker_id],
                "pid": processes.pid(plan.broker_id),
                "data_dir": str(plan.data_directory),
                "log": str(plan.log),
            }
            for plan in plans
        ]
        print_json_line({"bootstrap_servers": bootstrap, "brokers": rows})
    else:
        print_line(bootstrap)
    sys.stdout.flush()
    _say(f"{counted(len(plans), 'broker')} up, data in {plans[0].properties.parent}; Ctrl-C ends them")


def _watch(processes: BrokerProcesses, plans: list[BrokerPlan]) -> None:
    """Reports each broker that ends, until none is left."""
    from oncelog.cli.cluster.processes import Ended

    left = len(plans)
    while left:
        event = processes.next_event()
        if isinstance(event, Ended):
            _tell_end(event, plans)
            left -= 1
    _say("no broker is left")


def _end(processes: BrokerProcesses) -> int:
    """Ends all brokers and returns the exit code. Another Ctrl-C kills them."""
    running = processes.running()
    if running:
        _say(f"stopping {counted(len(running), 'broker')}")
    try:
        codes = processes.stop()
    except KeyboardInterrupt:
        processes.kill(running)
        return 1
    for broker_id, code in codes.items():
        if code:
            _say(f"broker {broker_id} did not stop cleanly ({how_it_ended(code)})")
    return 1 if any(codes.values()) else 0


def _tell_end(event: Ended, plans: list[BrokerPlan]) -> None:
    plan = next(plan for plan in plans if plan.broker_id == event.broker_id)
    last_line = plan.log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    _say(f"broker {event.broker_id} ended ({how_it_ended(event.exit_code)}); the last line in {plan.log}: {last_line}")


def how_it_ended(exit_code: int) -> str:
    """``exit code 1``, or ``signal 9``."""
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _say(text: str) -> None:
    print_line(f"oncelog: {text}", err=True, flush=True)
