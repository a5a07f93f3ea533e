"""Registration of a broker that joins: the tree's base, the cluster id, the broker itself, and the controller.

``min.insync.replicas`` is a fact of the cluster and never of one broker (KIP-966), as every leader has to judge by the
same. A cluster that does not say it yet, new or of an earlier version, takes it from the first broker that joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.base.ids import BrokerId
from oncelog.base.tree import Create, Operation, Set
from oncelog.core.controller import layout
from oncelog.core.controller.features import INITIAL_FEATURES
from oncelog.core.controller.image import ClusterImage
from oncelog.core.controller.model import BrokerImage, BrokerRecord
from oncelog.core.controller.resources import (
    ALL_BROKERS,
    MIN_INSYNC_REPLICAS,
    ConfigResourceType,
    Resource,
    current,
    write_configs,
)


class RegistrationRefused(Exception):
    """The broker cannot join; the message says why."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker that joins, and the address at which clients reach it."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    cluster_id: str
    """The id the cluster gets if it has none yet."""
    min_insync_replicas: int = 1
    """As the broker is configured: the cluster's, if it has none yet and none was set for the broker while it ran."""
    directory_id: str = ""
    """Of its data directory."""


def register(
    image: ClusterImage, broker: Registration, now_ms: int, features: Mapping[str, int] = INITIAL_FEATURES
) -> list[Operation]:
    """Operations by which a broker joins. With no controller alive it becomes the controller.

    Raises RegistrationRefused when a live broker has the same id.
    """
    if broker.broker_id in image.brokers:
        raise RegistrationRefused(f"a broker with id {broker.broker_id} is already running in this cluster")
    operations: list[Operation] = list(layout.missing_base(image.versions))
    if image.cluster_id is None:
        operations.append(Create(layout.CLUSTER_ID, layout.cluster_id_value(broker.cluster_id)))
    epoch = image.broker_epoch + 1
    operations.append(_counted(image, layout.BROKER_EPOCH, epoch))
    here = BrokerImage(broker.broker_id, broker.host, broker.port, broker.rack, epoch, directory_id=broker.directory_id)
    value = layout.broker_value(here, now_ms)
    operations.append(Create(layout.broker_path(broker.broker_id), value, ephemeral=True))
    operations.append(_record(image, broker, epoch))
    if image.controller_id not in image.brokers:
        operations.append(_counted(image, layout.CONTROLLER_EPOCH, image.controller_epoch + 1))
        controller = layout.controller_value(broker.broker_id, now_ms)
        operations.append(Create(layout.CONTROLLER, controller, ephemeral=True))
    if layout.FEATURES not in image.versions:
        operations.append(Create(layout.FEATURES, layout.features_value(features)))
    operations += _min_insync_replicas(image, broker)
    return operations


def _min_insync_replicas(image: ClusterImage, broker: Registration) -> list[Operation]:
    """Say ``min.insync.replicas`` for all brokers where nobody has yet, and for none of them alone."""
    operations = []
    all_brokers = current(image, ALL_BROKERS)
    if MIN_INSYNC_REPLICAS not in all_brokers.configs:
        own = current(image, Resource(ConfigResourceType.BROKER, str(broker.broker_id))).configs
        number = own.get(MIN_INSYNC_REPLICAS, str(broker.min_insync_replicas))
        configs = {**all_brokers.configs, MIN_INSYNC_REPLICAS: number}
        operations.append(write_configs(all_brokers, configs))
    for name, entity in image.broker_configs.items():
        if name and MIN_INSYNC_REPLICAS in entity.configs:
            configs = {key: text for key, text in entity.configs.items() if key != MIN_INSYNC_REPLICAS}
            operations.append(write_configs(current(image, Resource(ConfigResourceType.BROKER, name)), configs))
    return operations


def _record(image: ClusterImage, broker: Registration, epoch: int) -> Operation:
    path = layout.broker_record_path(broker.broker_id)
    value = layout.broker_record_value(BrokerRecord(broker.directory_id, epoch))
    known = image.broker_records.get(broker.broker_id)
    return Create(path, value) if known is None else Set(path, value, known.version)


def _counted(image: ClusterImage, path: str, number: int) -> Operation:
    value = str(number).encode()
    version = image.versions.get(path)
    return Create(path, value) if version is None else Set(path, value, version)
