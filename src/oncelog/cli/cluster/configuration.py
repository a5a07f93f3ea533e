"""The configuration of the brokers of ``oncelog cluster up``: one properties file per broker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import typer

from oncelog.base.notation.java_properties import escape_key, escape_value
from oncelog.base.notation.shell_words import argument, option
from oncelog.cli.cluster.processes import BrokerPlan
from oncelog.cli.support.properties_file import PropertiesError, read_properties_file

HOST: Final = "127.0.0.1"
PLAINTEXT: Final = "PLAINTEXT"
OURS: Final = (
    "node.id",
    "broker.id",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "oncelog.tree.path",
    "zookeeper.connect",
)
"""Keys that differ from broker to broker, or say where the cluster is."""
TREE_FILE: Final = "coordination.db"
"""The tree of a broker that is alone, in its data directory."""
TREE: Final = "cluster.db"
"""The tree of the cluster, in its directory."""
_REPLICAS: Final = 3


def defaults(brokers: int) -> dict[str, str]:
    """Default settings for a cluster of ``brokers`` brokers: with three, it survives the loss of one."""
    values = {"default.replication.factor": str(min(_REPLICAS, brokers))}
    if brokers >= _REPLICAS:
        values["min.insync.replicas"] = str(_REPLICAS - 1)
    return values


def plan_brokers(
    directory: Path, brokers: int, base_port: int, values: Mapping[str, str], listeners: Sequence[str] = (PLAINTEXT,)
) -> list[BrokerPlan]:
    """Creates the directory and writes each broker's properties file.

    The first listener of all brokers starts at ``base_port``, the next one after those ports. Raises BadParameter for
    the data of a stand-alone broker: without its tree, it would belong to no topic.
    """
    for broker_id in range(1, brokers + 1):
        alone = directory / str(broker_id) / TREE_FILE
        if alone.exists():
            raise typer.BadParameter(
                f"broker {broker_id} was a single broker; move its topics into the cluster with "
                f"oncelog cluster adopt {option('--data-dir', directory)} {argument(str(alone.parent))}",
                param_hint="--data-dir",
            )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    plans = []
    for broker_id in range(1, brokers + 1):
        plan = BrokerPlan(
            broker_id,
            directory / f"broker-{broker_id}.properties",
            directory / f"broker-{broker_id}.log",
            directory / str(broker_id),
        )
        ports = [base_port and base_port + place * brokers + broker_id - 1 for place in range(len(listeners))]
        own = {
            "node.id": str(broker_id),
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in zip(listeners, ports, strict=True)),
            "log.dirs": str(plan.data_directory),
            "oncelog.tree.path": str(directory / TREE),
        }
        _write(plan.properties, properties_text({**values, **own}))
        plans.append(plan)
    return plans


def secured(directory: Path, port: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """The settings and listener names of a broker secured by ``oncelog security init``; creates absent files. Raises
    BadParameter."""
    from oncelog.security.setup import SetupRequest, set_up

    path = directory / "server.properties"
    try:
        if not directory.exists():
            set_up(directory, SetupRequest(port=port))
        values = read_properties_file(path)
    except (OSError, PropertiesError) as error:
        raise typer.BadParameter(
            f"{error}; oncelog security init makes such a directory", param_hint="--security"
        ) from None
    names = [part.partition("://")[0].strip() for part in values.get("listeners", "").split(",")]
    return {key: value for key, value in values.items() if key not in OURS}, tuple(filter(None, names))


def _write(path: Path, text: str) -> None:
    """Writes a file that only its owner may read: the settings contain secrets."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)


def properties_text(values: Mapping[str, str]) -> str:
    """Settings as a properties file, in the form that ``base.notation.java_properties`` reads."""
    lines = [f"{escape_key(key)}={escape_value(value)}" for key, value in values.items()]
    return "# Written by oncelog cluster up at each start.\n" + "".join(line + "\n" for line in lines)
