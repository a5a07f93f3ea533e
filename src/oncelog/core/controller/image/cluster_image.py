"""The cluster as one value: brokers, topics, configs and features after the last applied change.

Rules:

1. An image is immutable; ``apply`` makes the next one. The same code loads a whole tree, so that a restarted broker
   sees exactly what a running one does.
2. An image has the versions of the nodes it was read from. Decisions expect them, so one on an outdated image cannot be
   committed.
3. A topic exists if its node does; its partitions and its config are committed together with it.

``derived`` caches results of pure functions of the image and is dropped with it. Results that depend on one topic
(``remembered``) live until the topic or a broker changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from oncelog.base.acls import ResourceAcls, ResourcePattern
from oncelog.base.ids import NO_BROKER, BrokerId, TopicId, TopicName, TopicPartition
from oncelog.base.tree import ANY_VERSION, Check, Create, Delete, Operation, TreeNode
from oncelog.core.controller.image import acl_nodes, layout
from oncelog.core.controller.image.client_entities import ClientEntities, ClientEntity, entity_at
from oncelog.core.controller.image.model import ABSENT as ABSENT
from oncelog.core.controller.image.model import FIRST_TREE_FORMAT
from oncelog.core.controller.image.model import BrokerImage as BrokerImage
from oncelog.core.controller.image.model import BrokerRecord as BrokerRecord
from oncelog.core.controller.image.model import Change as Change
from oncelog.core.controller.image.model import ConfigImage as ConfigImage
from oncelog.core.controller.image.model import PartitionImage as PartitionImage
from oncelog.core.controller.image.model import Suspicion as Suspicion
from oncelog.core.controller.image.model import TopicImage as TopicImage
from oncelog.core.controller.image.topic_replay import TopicReplay

T = TypeVar("T")
Brokers = Mapping[BrokerId, BrokerImage]

_NOTHING_SET: Final = ConfigImage(MappingProxyType({}), ABSENT)


def is_alive(brokers: Brokers, broker_id: BrokerId) -> bool:
    """True if the broker is registered and not fenced, so that clients may be sent to it."""
    broker = brokers.get(broker_id)
    return broker is not None and not broker.fenced


@dataclass(frozen=True)
class ClusterImage:
    topics: Mapping[TopicName, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[TopicId, TopicName] = field(default_factory=dict)
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    broker_records: Mapping[BrokerId, BrokerRecord] = field(default_factory=dict)
    """The persistent record of every broker ever registered."""
    suspicions: Mapping[tuple[BrokerId, BrokerId], Suspicion] = field(default_factory=dict)
    """Suspicions that a broker is frozen, by suspect and observer."""
    broker_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    """Dynamic broker configs by id as text; ``""`` has those for all brokers."""
    group_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    client_metrics_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    client_entities: ClientEntities = field(default_factory=dict)
    """Entities with quotas, and users with SCRAM credentials."""
    acls: Mapping[ResourcePattern, ResourceAcls] = field(default_factory=dict)
    """Non-empty access control lists by pattern."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized level by feature; level 0 is absent."""
    features_epoch: int = -1
    """Rises with each change of finalized features."""
    controller_id: BrokerId = NO_BROKER
    controller_epoch: int = 0
    cluster_id: str | None = None
    tree_format: int = FIRST_TREE_FORMAT
    broker_epoch: int = -1
    """The last broker epoch assigned."""
    producer_id_block: tuple[int, int] | None = None
    """First and last id of the newest block of producer ids."""
    login_secret: bytes | None = field(default=None, repr=False)
    """The secret that gives unknown SCRAM users their salts; None until a broker has needed it."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Versions of single nodes (cluster id, controller, features, producer ids, broker epoch, base) by path."""
    derived: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    memory: dict[tuple[object, TopicName], tuple[TopicImage, Any]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Results of ``remembered``, shared between successive images."""

    def remembered(self, topic: TopicImage, describe: Callable[[TopicImage, Brokers], T]) -> T:
        """``describe(topic, brokers)``, a pure function, recomputed only if the topic or a broker has changed."""
        key = (describe, topic.name)
        cached = self.memory.get(key)
        if cached is None or cached[0] is not topic:
            cached = self.memory[key] = (topic, describe(topic, self.brokers))
        return cast("T", cached[1])

    def topic_of_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def has_partition(self, partition: TopicPartition) -> bool:
        return self.partition(partition) is not None

    def is_registered(self, broker_id: int) -> bool:
        """True if the broker is alive, or was and has not been unregistered since."""
        if broker_id in self.brokers:
            return True
        record = self.broker_records.get(BrokerId(broker_id))
        return record is not None and not record.unregistered

    def dynamic_broker_configs(self, broker_id: BrokerId) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The dynamic configs for all brokers and those for ``broker_id``."""
        configs = self.broker_configs
        return configs.get("", _NOTHING_SET).configs, configs.get(str(broker_id), _NOTHING_SET).configs

    def apply(self, changes: Iterable[Change | TreeNode]) -> ImageDelta:
        """Raises ``layout.DamagedFact`` for a node that cannot be read."""
        return _Replay(self).run(changes)


class ImageDelta(NamedTuple):
    """The next image, and the differences that the node acts on."""

    image: ClusterImage
    created: tuple[TopicName, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    """Deleted topics in their last state. A topic deleted and created again is in both lists."""
    altered: tuple[TopicName, ...] = ()
    """Topics with new partitions, leaders or in-sync sets."""
    configs: tuple[TopicName, ...] = ()
    """Existing topics whose own configs changed."""
    client_entities: tuple[ClientEntity, ...] = ()
    """Entities whose configs changed."""
    broker_configs: bool = False
    brokers: bool = False
    features: bool = False


EMPTY_IMAGE: Final = ClusterImage()


def load_image(nodes: Iterable[TreeNode]) -> ClusterImage:
    return EMPTY_IMAGE.apply(nodes).image


def configs_of(image: ClusterImage, entity: ClientEntity) -> Mapping[str, str]:
    node = image.client_entities.get(entity)
    return {} if node is None else node.configs


def changes_of(operations: Sequence[Operation]) -> list[Change]:
    """The changes that a commit of ``operations``, all with expected versions, makes."""
    changes = []
    for operation in operations:
        if isinstance(operation, Create):
            changes.append(Change(operation.path, operation.value, 0))
        elif isinstance(operation, Delete):
            changes.append(Change(operation.path, None, ABSENT))
        elif not isinstance(operation, Check):
            if operation.expected_version == ANY_VERSION:
                raise ValueError(f"a decision names the version it expects: {operation.path}")
            changes.append(Change(operation.path, operation.value, operation.expected_version + 1))
    return changes


class _Replay:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics = TopicReplay(image.topics)
        self._single: dict[str, Any] = {}
        self._versions: dict[str, int] | None = None
        self._maps: dict[str, dict[Any, Any]] = {}
        self._entities: dict[ClientEntity, None] = {}

    def run(self, changes: Iterable[Change | TreeNode]) -> ImageDelta:
        topics = self._topics
        for change in changes:
            path, value = change.path, change.value
            if path.startswith("/brokers/topics/"):
                topics.change(path, value, change.version)
            elif path.startswith("/config/topics/"):
                topics.change_config(path, value, change.version)
            elif path.startswith("/brokers/ids/"):
                self._broker(path, value, change.version)
            elif path.startswith("/oncelog/brokers/"):
                self._broker_record(path, value, change.version)
            elif path.startswith(_BELOW_SUSPICIONS):
                self._suspicion(path, value, change.version)
            elif path.startswith("/config/") and path.count("/") in (3, 5):
                self._config(path, value, change.version)
            elif (pattern := acl_nodes.pattern_of(path)) is not None:
                self._acls(pattern, change)
            elif not path.startswith("/consumers"):  # old consumers' offsets and owners are not metadata
                self._single_node(path, value, change.version)
        return self._finish()

    def _finish(self) -> ImageDelta:
        image = self._image
        replayed = self._topics.finish()
        facts = {**self._single, **self._maps}
        if self._versions is not None:
            facts["versions"] = self._versions
        names = image.topic_names
        # Remembered results depend on brokers too.
        memory = {} if "brokers" in self._maps else image.memory
        if replayed.created or replayed.deleted:
            names = dict(names)
            lost = {gone.name for gone in replayed.deleted}
            # Deleted topics must not keep their results alive.
            for key in [key for key in memory if key[1] in lost]:
                del memory[key]
            for gone in replayed.deleted:
                names.pop(gone.topic_id, None)
            for name in replayed.created:
                names[replayed.topics[name].topic_id] = name
        return ImageDelta(
            image=replace(image, topics=replayed.topics, topic_names=names, derived={}, memory=memory, **facts),
            created=tuple(replayed.created),
            deleted=tuple(replayed.deleted),
            altered=tuple(replayed.altered),
            configs=tuple(replayed.configs),
            client_entities=tuple(self._entities),
            broker_configs="broker_configs" in self._maps,
            brokers="brokers" in self._maps,
            features="features" in self._single,
        )

    def _map(self, name: str) -> dict[Any, Any]:
        if name not in self._maps:
            self._maps[name] = dict(getattr(self._image, name))
        return self._maps[name]

    def _broker(self, path: str, value: bytes | None, version: int) -> None:
        brokers = self._map("brokers")
        if value is None:
            brokers.pop(BrokerId(int(path.rpartition("/")[2])), None)
        else:
            broker = layout.read_broker(path, value, version)
            brokers[broker.broker_id] = broker

    def _broker_record(self, path: str, value: bytes | None, version: int) -> None:
        records = self._map("broker_records")
        if value is None:
            records.pop(BrokerId(int(path.rpartition("/")[2])), None)
        else:
            broker_id, record = layout.read_broker_record(path, value, version)
            records[broker_id] = record

    def _suspicion(self, path: str, value: bytes | None, version: int) -> None:
        suspicions, key = self._map("suspicions"), layout.suspicion_key(path)
        if value is None:
            suspicions.pop(key, None)
        else:
            suspicions[key] = layout.read_suspicion(path, value, version)

    def _config(self, path: str, value: bytes | None, version: int) -> None:
        _, _, kind, node = path.split("/", 3)
        name: str | ClientEntity = layout.entity_of(node)
        field_name = _CONFIG_FIELDS.get(kind)
        if field_name is None:
            entity = entity_at(path)
            if entity is None:
                return
            name, field_name = entity, "client_entities"
            self._entities[entity] = None
        configs = self._map(field_name)
        if value is None:
            configs.pop(name, None)
        else:
            configs[name] = ConfigImage(MappingProxyType(layout.read_config(path, value)), version, node)

    def _acls(self, pattern: ResourcePattern, change: Change | TreeNode) -> None:
        acls = self._map("acls")
        if change.value is None:
            acls.pop(pattern, None)
        else:
            acls[pattern] = acl_nodes.read_acls(change.path, change.value, change.version)

    def _single_node(self, path: str, value: bytes | None, version: int) -> None:
        if self._versions is None:
            self._versions = dict(self._image.versions)
        if value is None:
            self._versions.pop(path, None)
        else:
            self._versions[path] = version
        single = self._single
        if path == layout.FEATURES:
            single["features"] = MappingProxyType({} if value is None else layout.read_features(path, value))
            single["features_epoch"] = version
        elif path == layout.CONTROLLER:
            single["controller_id"] = NO_BROKER if value is None else layout.read_controller(path, value)
        elif path in _SINGLE_NODES and value is not None:
            name, read = _SINGLE_NODES[path]
            single[name] = read(path, value)


_SINGLE_NODES: Final[dict[str, tuple[str, Callable[[str, bytes], object]]]] = {
    layout.CONTROLLER_EPOCH: ("controller_epoch", layout.read_number),
    layout.CLUSTER_ID: ("cluster_id", layout.read_cluster_id),
    layout.BROKER_EPOCH: ("broker_epoch", layout.read_number),
    layout.PRODUCER_ID_BLOCK: ("producer_id_block", layout.read_producer_id_block),
    layout.TREE_FORMAT: ("tree_format", layout.read_number),
    layout.LOGIN_SECRET: ("login_secret", lambda _path, value: value),
}
"""Single nodes whose last value stays when they are deleted: the field's name and its parser."""

_BELOW_SUSPICIONS: Final = f"{layout.SUSPICIONS}/"

_CONFIG_FIELDS: Final = {
    "brokers": "broker_configs",
    "groups": "group_configs",
    "client-metrics": "client_metrics_configs",
}
