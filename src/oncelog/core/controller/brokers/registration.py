"""Registers a broker that joins: creates the tree's base, the cluster id, the broker's nodes and the controller.

A broker is fenced if its directory is new or may lack records (:func:`_may_lack_records`) that others rely on, until
the controller has removed it from all in-sync sets. The broker's record keeps this over restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.base.security import Endpoint
from oncelog.base.tree import Create, Delete, Operation, Set
from oncelog.core.controller.brokers.features import INITIAL_FEATURES, SUPPORTED_FEATURES, unsupported_feature
from oncelog.core.controller.brokers.tree_format import KNOWN_FORMATS, write_format
from oncelog.core.controller.commits import COMMIT_BYTES, operations_of, size_bytes
from oncelog.core.controller.fencing import topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import (
    UNKNOWN_BROKER_EPOCH,
    BrokerImage,
    BrokerRecord,
    FeatureRange,
    TreeFormats,
)
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.controller.replicas.failover import claim_controller, counted, has_controller
from oncelog.core.controller.replicas.withdrawal import without_lost
from oncelog.core.controller.resources import (
    ALL_BROKERS,
    MIN_INSYNC_REPLICAS,
    ConfigResourceType,
    Resource,
    current,
    write_configs,
)

COMMIT: Final = "commit"
"""The ``log.sync.policy`` that acknowledges only records on disk."""


class RegistrationRefused(Exception):
    """The broker cannot join; the message has the reason and the remedy."""


class BrokerIdInUse(RegistrationRefused):
    """Another live broker has this id."""


class Registration(NamedTuple):
    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    cluster_id: str
    """The cluster id in its data directory; a new cluster adopts it."""
    min_insync_replicas: int = 1
    """The broker's configured value, adopted by a cluster without one unless a dynamic value was set for the broker."""
    directory_id: str = ""
    was_clean: bool = True
    """True if its last run ended cleanly, or belonged to this process."""
    lost: Collection[TopicPartition] = ()
    """Partitions with records that were on its disk and can no longer be read."""
    sync_policy: str = COMMIT
    """The broker's ``log.sync.policy``."""
    last_epoch: int = UNKNOWN_BROKER_EPOCH
    """Epoch of the registration whose run ended cleanly last."""
    tree_formats: TreeFormats = KNOWN_FORMATS
    endpoints: tuple[Endpoint, ...] = ()
    """The broker's listeners; empty: one PLAINTEXT listener at ``host`` and ``port``."""
    features: Mapping[str, FeatureRange] = SUPPORTED_FEATURES
    freeze_timeout_ms: int = 0
    """Silence after which others may find this broker frozen; 0: never."""

    def again(self) -> Registration:
        """The registration of the same process in a new session, where the state left by its last run does not
        matter."""
        return self._replace(was_clean=True, lost=(), last_epoch=UNKNOWN_BROKER_EPOCH)


def register(
    image: ClusterImage, broker: Registration, now_ms: int, features: Mapping[str, int] = INITIAL_FEATURES
) -> list[Operation]:
    """The broker becomes controller if none is alive. Raises RegistrationRefused."""
    _check_cluster(image, broker)
    _check_format(image, broker.tree_formats)
    if reason := unsupported_feature(image.features, broker.features):
        raise RegistrationRefused(f"{reason}; start this broker with the version of the other brokers")
    operations: list[Operation] = _replaced(image, broker)
    operations += layout.missing_base(image.versions)
    if image.cluster_id is None:
        operations.append(write_format(image, broker.tree_formats.newest))
        operations.append(Create(layout.CLUSTER_ID, layout.cluster_id_value(broker.cluster_id)))
    epoch = image.broker_epoch + 1
    operations.append(counted(image, layout.BROKER_EPOCH, epoch))
    withdrawals = operations_of(image, without_lost(image, broker.broker_id, broker.lost))
    # The broker leaves the in-sync sets of partitions whose records it has lost to damage, and stays in the others:
    # another broker may have lost records there. Too many lost partitions for one commit fence the broker instead.
    fits = size_bytes(withdrawals) <= COMMIT_BYTES
    if withdrawals and fits:
        operations += [*topics_check(image), *withdrawals]
    operations += _registered(image, broker, epoch, now_ms, has_unsaid_losses=not fits)
    # The controller's node is ephemeral: this broker's former session may still hold it.
    if not has_controller(image) or image.controller_id == broker.broker_id:
        operations += claim_controller(image, broker.broker_id, now_ms)
    if layout.FEATURES not in image.versions:
        operations.append(Create(layout.FEATURES, layout.features_value(features)))
    operations += _min_insync_replicas(image, broker)
    return operations


def check_complete(image: ClusterImage) -> None:
    """Raise RegistrationRefused if ``oncelog cluster adopt`` has not finished copying the tree."""
    if layout.ADOPTING in image.versions:
        raise RegistrationRefused(
            "oncelog cluster adopt is copying a single broker into this coordination tree; if interrupted, run it "
            "again with the same arguments, then start this broker"
        )


def _check_cluster(image: ClusterImage, broker: Registration) -> None:
    check_complete(image)
    if image.cluster_id is not None and image.cluster_id != broker.cluster_id:
        raise RegistrationRefused(
            f"the data directory belongs to cluster {broker.cluster_id}, but the coordination tree belongs to cluster "
            f"{image.cluster_id}; use the tree of {broker.cluster_id}, or another data directory"
        )


def _check_format(image: ClusterImage, formats: TreeFormats) -> None:
    if image.tree_format > formats.newest:
        raise RegistrationRefused(
            f"the coordination tree has format {image.tree_format}, and this version of oncelog supports formats up to "
            f"{formats.newest}; start this broker with the version of the other brokers"
        )
    if image.cluster_id is not None and image.tree_format < formats.oldest:
        raise RegistrationRefused(
            f"the coordination tree has format {image.tree_format}, and this version of oncelog supports formats from "
            f"{formats.oldest}; start all brokers with an intermediate version first"
        )


def _replaced(image: ClusterImage, broker: Registration) -> list[Operation]:
    registered = image.brokers.get(broker.broker_id)
    if registered is None:
        return []
    if not broker.directory_id or registered.directory_id != broker.directory_id:
        raise BrokerIdInUse(
            f"a broker with id {broker.broker_id} is already running in this cluster, at "
            f"{registered.host}:{registered.port} with another data directory; change this broker's "
            "node.id, or stop the other one"
        )
    # A live registration with the same directory belongs to a dead process, because this process holds the directory's
    # lock; the same commit replaces it.
    return [Delete(layout.broker_path(broker.broker_id), registered.version)]


def _registered(
    image: ClusterImage, broker: Registration, epoch: int, now_ms: int, *, has_unsaid_losses: bool
) -> list[Operation]:
    record = image.broker_records.get(broker.broker_id)
    is_new_directory = record is not None and (
        record.is_new_directory or record.directory_id not in ("", broker.directory_id)
    )
    may_lack_records = is_new_directory or has_unsaid_losses or _may_lack_records(broker, record)
    # A broker without shared partitions has nothing that others rely on.
    fenced = may_lack_records and _others_rely_on(image, broker.broker_id)
    here = BrokerImage(
        broker.broker_id,
        broker.host,
        broker.port,
        broker.rack,
        epoch,
        directory_id=broker.directory_id,
        fenced=fenced,
        is_new_directory=fenced and is_new_directory,
        endpoints=broker.endpoints,
        tree_formats=broker.tree_formats,
        features=broker.features,
        freeze_timeout_ms=broker.freeze_timeout_ms,
    )
    path = layout.broker_record_path(broker.broker_id)
    value = layout.broker_record_value(
        BrokerRecord(
            broker.directory_id,
            epoch,
            fenced=here.fenced,
            is_new_directory=here.is_new_directory,
            sync_policy=broker.sync_policy,
            rack=broker.rack,
            endpoints=here.listeners,
        )
    )
    return [
        Create(layout.broker_path(broker.broker_id), layout.broker_value(here, now_ms), ephemeral=True),
        Create(path, value) if record is None else Set(path, value, record.version),
    ]


def _may_lack_records(broker: Registration, record: BrokerRecord | None) -> bool:
    """True if the directory may lack acknowledged records: it is an old copy, its last run ended uncleanly without
    syncing, or an earlier such case is still unresolved.
    """
    if record is None:
        return not broker.was_clean and broker.sync_policy != COMMIT
    is_old = broker.last_epoch not in (UNKNOWN_BROKER_EPOCH, record.epoch)
    return record.fenced or is_old or (not broker.was_clean and (record.sync_policy or broker.sync_policy) != COMMIT)


def _others_rely_on(image: ClusterImage, broker_id: BrokerId) -> bool:
    return any(
        len(partition.replicas) > 1 and broker_id in (*partition.isr, *partition.elr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def _min_insync_replicas(image: ClusterImage, broker: Registration) -> list[Operation]:
    """Set ``min.insync.replicas`` for all brokers if it is unset, and remove it from single brokers."""
    # It belongs to the cluster, never to one broker (KIP-966), because every leader must judge alike. A cluster without
    # one, new or from an earlier version, takes it from the first broker that joins.
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


def unregister(image: ClusterImage, broker_id: int) -> Decided[None]:
    """Unregister a broker. A live one is refused, because it would register again at once (KIP-631)."""
    if not image.is_registered(broker_id):
        message = f"Broker ID {broker_id} is not currently registered"
        return Decided([], [Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)])
    if broker_id in image.brokers:
        message = f"Broker ID {broker_id} is running: stop it first"
        return Decided([], [Refusal(ErrorCode.INVALID_REQUEST, message)])
    record = image.broker_records[BrokerId(broker_id)]
    # The record stays, so that an empty directory that registers with the same id is not trusted to have the
    # acknowledged records.
    value = layout.broker_record_value(record._replace(unregistered=True))
    return Decided([Set(layout.broker_record_path(BrokerId(broker_id)), value, record.version)], [None])
