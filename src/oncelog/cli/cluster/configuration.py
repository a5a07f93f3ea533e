"""The configuration of the brokers of ``oncelog cluster up``, one properties file each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from oncelog.cli.cluster.processes import BrokerPlan

HOST: Final = "127.0.0.1"
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
    """The settings of a cluster of so many brokers, where the user says nothing else: it survives the loss of one
    of three."""
    values = {"default.replication.factor": str(min(_REPLICAS, brokers))}
    if brokers >= _REPLICAS:
        values["min.insync.replicas"] = str(_REPLICAS - 1)
    return values


def plan_brokers(directory: Path, brokers: int, base_port: int, values: Mapping[str, str]) -> list[BrokerPlan]:
    """Write the properties file of each broker, and make the directory.

    Raises BadParameter for the data of a broker that was alone: without its tree they would belong to no topic.
    """
    for broker_id in range(1, brokers + 1):
        alone = directory / str(broker_id) / TREE_FILE
        if alone.exists():
            raise typer.BadParameter(
                f"broker {broker_id} has been alone; take its topics along: "
                f"oncelog cluster adopt {alone.parent} --data-dir {directory}",
                param_hint="--data-dir",
            )
    directory.mkdir(parents=True, exist_ok=True)
    plans = []
    for broker_id in range(1, brokers + 1):
        plan = BrokerPlan(
            broker_id,
            directory / f"broker-{broker_id}.properties",
            directory / f"broker-{broker_id}.log",
            directory / str(broker_id),
        )
        port = base_port + broker_id - 1 if base_port else 0
        own = {
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(plan.data_directory),
            "oncelog.tree.path": str(directory / TREE),
        }
        plan.properties.write_text(properties_text({**values, **own}), encoding="utf-8")
        plans.append(plan)
    return plans


def properties_text(values: Mapping[str, str]) -> str:
    """Settings as a properties file; ``node.settings.parse_properties`` reads the same from it."""
    lines = [f"{_escaped(key, ' =:#!')}={_escaped(value)}" for key, value in values.items()]
    return "# Written by oncelog cluster up at each start.\n" + "".join(line + "\n" for line in lines)


def _escaped(text: str, marks: str = "") -> str:
    return "".join(f"\\{one}" if one == "\\" or one in marks else one for one in text)
