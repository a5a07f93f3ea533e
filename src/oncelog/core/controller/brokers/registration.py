"""Registration of a broker that joins: the tree's base, the cluster id, the broker itself, and the controller.

Rules:
1. One directory, one broker: a live registration with the same directory id is of a process that is dead, since the
   directory's lock is held here; it is replaced in the same commit. With another directory, the id is in use.
2. A broker whose directory may lack records that count on it is fenced until the controller has taken it out of all
   in-sync sets: the directory is not the one its id had before, or its last run was not the last registration, or it
   ended uncleanly and acknowledged records that were not on disk. The record of the broker keeps that over restarts.
3. A broker that has lost records of known partitions, as they are damaged, leaves the in-sync sets of these in the same
   commit. It stays in the others: another broker may have lost records there. Where the partitions are too many for
   one commit it is fenced.
4. ``min.insync.replicas`` is a fact of the cluster and never of one broker (KIP-966), as every leader has to judge by
   the same. A cluster that does not say it yet, new or of an earlier version, takes it from the first that joins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.base.security import Endpoint
from oncelog.base.tree import Create, Delete, Operation, Set
from oncelog.core.controller.brokers.features import INITIAL_FEATURES
from oncelog.core.controller.brokers.tree_format import KNOWN_FORMATS, write_format
from oncelog.core.controller.commits import COMMIT_BYTES, operations_of, size_bytes
from oncelog.core.controller.fencing import topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH, BrokerImage, BrokerRecord, TreeFormats
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
"""The ``log.sync.policy`` under which nothing is acknowledged that is not on disk."""


class RegistrationRefused(Exception):
    """The broker cannot join; the message says why and what to do."""


class BrokerIdInUse(RegistrationRefused):
    """Another live broker has the id."""


class Registration(NamedTuple):
    """A broker that joins, and the address at which clients reach it."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    cluster_id: str
    """The cluster id of its data directory: the one the cluster gets if it has none yet."""
    min_insync_replicas: int = 1
    """The broker's configured value: the cluster's, if it has none yet and none was set for the broker while it ran."""
    directory_id: str = ""
    """Id of its data directory."""
    was_clean: bool = True
    """True if its last run ended cleanly, or was one of the same process."""
    lost: Collection[TopicPartition] = ()
    """Partitions of which records that were on its disk are not to be read any more."""
    sync_policy: str = COMMIT
    """The broker's ``log.sync.policy``."""
    last_epoch: int = UNKNOWN_BROKER_EPOCH
    """Epoch of the registration in which its last run ended cleanly."""
    tree_formats: TreeFormats = KNOWN_FORMATS
    endpoints: tuple[Endpoint, ...] = ()
    """Listeners of the broker; empty: one, PLAINTEXT, at ``host`` and ``port``."""

    def again(self) -> Registration:
        """The registration of the same process in a new session: what its last run left does not matter any more."""
        return self._replace(was_clean=True, lost=(), last_epoch=UNKNOWN_BROKER_EPOCH)


def register(
    image: ClusterImage, broker: Registration, now_ms: int, features: Mapping[str, int] = INITIAL_FEATURES
) -> list[Operation]:
    """Operations by which a broker joins. With no controller alive it becomes the controller.

    Raises RegistrationRefused.
    """
    _check_cluster(image, broker)
    _check_format(image, broker.tree_formats)
    operations: list[Operation] = _replaced(image, broker)
    operations += layout.missing_base(image.versions)
    if image.cluster_id is None:
        operations.append(write_format(image, broker.tree_formats.newest))
        operations.append(Create(layout.CLUSTER_ID, layout.cluster_id_value(broker.cluster_id)))
    epoch = image.broker_epoch + 1
    operations.append(counted(image, layout.BROKER_EPOCH, epoch))
    withdrawals = operations_of(image, without_lost(image, broker.broker_id, broker.lost))
    fits = size_bytes(withdrawals) <= COMMIT_BYTES
    if withdrawals and fits:
        operations += [*topics_check(image), *withdrawals]
    operations += _registered(image, broker, epoch, now_ms, has_unsaid_losses=not fits)
    if not has_controller(image) or image.controller_id == broker.broker_id:
        operations += claim_controller(image, broker.broker_id, now_ms)
    if layout.FEATURES not in image.versions:
        operations.append(Create(layout.FEATURES, layout.features_value(features)))
    operations += _min_insync_replicas(image, broker)
    return operations


def check_complete(image: ClusterImage) -> None:
    """Raise RegistrationRefused where ``oncelog cluster adopt`` has not copied all of the tree."""
    if layout.ADOPTING in image.versions:
        raise RegistrationRefused(
            "a broker that was alone is being adopted into this coordination tree; if that was interrupted, run "
            "oncelog cluster adopt again as before, then start this broker"
        )


def _check_cluster(image: ClusterImage, broker: Registration) -> None:
    check_complete(image)
    if image.cluster_id is not None and image.cluster_id != broker.cluster_id:
        raise RegistrationRefused(
            f"the data directory belongs to cluster {broker.cluster_id}, but the coordination tree is that of cluster "
            f"{image.cluster_id}; use that cluster's tree, or another data directory"
        )


def _check_format(image: ClusterImage, formats: TreeFormats) -> None:
    if image.tree_format > formats.newest:
        raise RegistrationRefused(
            f"the coordination tree has format {image.tree_format}, and this version of oncelog knows formats up to "
            f"{formats.newest}: start this broker with the version that the others have"
        )
    if image.cluster_id is not None and image.tree_format < formats.oldest:
        raise RegistrationRefused(
            f"the coordination tree has format {image.tree_format}, and this version of oncelog knows formats from "
            f"{formats.oldest} on: start all brokers with a version in between first"
        )


def _replaced(image: ClusterImage, broker: Registration) -> list[Operation]:
    """Operations that end a registration which the dead process of the same directory has left."""
    registered = image.brokers.get(broker.broker_id)
    if registered is None:
        return []
    if not broker.directory_id or registered.directory_id != broker.directory_id:
        raise BrokerIdInUse(
            f"a broker with id {broker.broker_id} is already running in this cluster, at "
            f"{registered.host}:{registered.port} with another data directory; give this one another "
            "node.id, or stop that one"
        )
    return [Delete(layout.broker_path(broker.broker_id), registered.version)]


def _registered(
    image: ClusterImage, broker: Registration, epoch: int, now_ms: int, *, has_unsaid_losses: bool
) -> list[Operation]:
    record = image.broker_records.get(broker.broker_id)
    is_new_directory = record is not None and (
        record.is_new_directory or record.directory_id not in ("", broker.directory_id)
    )
    may_lack_records = is_new_directory or has_unsaid_losses or _may_lack_records(broker, record)
    fenced = may_lack_records and _is_counted_on(image, broker.broker_id)
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
    """True if the directory may lack what was acknowledged: it is an old copy, or the last run kept to no syncs and
    ended uncleanly, or that was so before and the controller has not dealt with it yet."""
    if record is None:
        return not broker.was_clean and broker.sync_policy != COMMIT
    is_old = broker.last_epoch not in (UNKNOWN_BROKER_EPOCH, record.epoch)
    return record.fenced or is_old or (not broker.was_clean and (record.sync_policy or broker.sync_policy) != COMMIT)


def _is_counted_on(image: ClusterImage, broker_id: BrokerId) -> bool:
    """True if a partition with other replicas counts on what this one has."""
    return any(
        len(partition.replicas) > 1 and broker_id in (*partition.isr, *partition.elr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )


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


def unregister(image: ClusterImage, broker_id: int) -> Decided[None]:
    """Unregister one broker; refused while it is alive, since it would register again at once (KIP-631).

    Its record stays, marked: what it says of the broker's directory keeps an empty one that registers under the same
    id from being taken for one that has the acknowledged records.
    """
    if not image.is_registered(broker_id):
        message = f"Broker ID {broker_id} is not currently registered"
        return Decided([], [Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)])
    if broker_id in image.brokers:
        message = f"Broker ID {broker_id} is running: stop it first"
        return Decided([], [Refusal(ErrorCode.INVALID_REQUEST, message)])
    record = image.broker_records[BrokerId(broker_id)]
    value = layout.broker_record_value(record._replace(unregistered=True))
    return Decided([Set(layout.broker_record_path(BrokerId(broker_id)), value, record.version)], [None])
