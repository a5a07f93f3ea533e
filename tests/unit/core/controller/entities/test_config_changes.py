from __future__ import annotations

from collections.abc import Mapping

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.base.tree import Check, Create, Set
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.entities.config_changes import Alteration, ChangeType, ConfigChange, alter_configs
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import Change, ClusterImage
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.controller.resources import ConfigResourceType, Resource, current
from oncelog.core.controller.topics.changes import NewTopic
from tests.unit.core.controller.cluster import applied, cluster

SET, DELETE, APPEND, SUBTRACT = ChangeType
TOPIC = Resource(ConfigResourceType.TOPIC, "t")
BROKER = Resource(ConfigResourceType.BROKER, "1")
ALL_BROKERS = Resource(ConfigResourceType.BROKER, "")
GROUP = Resource(ConfigResourceType.GROUP, "g/1")
METRICS = Resource(ConfigResourceType.CLIENT_METRICS, "m")
RETENTION = "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
THREADS = "Dynamic thread count update validation failed for"
NO_BROKER_LEVEL = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
ALWAYS_CLUSTER_LEVEL = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."


@pytest.fixture
def image() -> ClusterImage:
    return cluster(topics=[NewTopic("t", configs=[("retention.ms", "5"), ("cleanup.policy", "compact")])])


def decide(image: ClusterImage, *alterations: Alteration) -> Decided[None]:
    return alter_configs(image, BrokerConfig(), BrokerId(1), alterations)


def change(image: ClusterImage, resource: Resource, *changes: tuple[str, int, str | None]) -> Mapping[str, str]:
    alteration = Alteration(resource, [ConfigChange(key, value, kind) for key, kind, value in changes])
    decided = decide(image, alteration)
    assert decided.outcomes == [None]
    return current(applied(image, decided.operations), resource).configs


def refusal(image: ClusterImage, resource: Resource, *changes: tuple[str, int, str | None]) -> Refusal:
    decided = decide(image, Alteration(resource, [ConfigChange(key, value, kind) for key, kind, value in changes]))
    assert decided.operations == []
    assert isinstance(decided.outcomes[0], Refusal)
    return decided.outcomes[0]


def test_incremental_changes_leave_the_other_keys_alone(image: ClusterImage) -> None:
    assert change(image, TOPIC, ("segment.ms", SET, "7"), ("retention.ms", DELETE, None)) == {
        "cleanup.policy": "compact",
        "segment.ms": "7",
    }


def test_clients_of_a_metrics_subscription_are_named_by_their_labels(image: ClusterImage) -> None:
    match = r"client_id=a++, client_software_version=1\..*,client_source_port=9,client_id=(?!x)(.)\1\p{Alpha}"
    assert change(image, METRICS, ("match", SET, match), ("interval.ms", SET, "3600000")) == {
        "match": match,
        "interval.ms": "3600000",
    }


def test_expressions_of_a_metrics_subscription_cost_no_time(image: ClusterImage) -> None:
    """Python's re took 6 ms for each of these classes, 28 s for a value of 32 kB."""
    match = ",".join("client_id=(?i)" + "[\0-\uffff]" * 90 for _ in range(40))
    assert change(image, METRICS, ("match", SET, match)) == {"match": match}


@pytest.mark.parametrize(
    "configs",
    [
        {"log.local.retention.ms": "604800000"},
        {"log.local.retention.ms": "-1", "log.retention.ms": "-1"},
        {"log.local.retention.ms": "5", "log.retention.ms": "-1"},
        {"log.local.retention.bytes": "6"},
        {"log.local.retention.bytes": "5", "log.retention.bytes": "5"},
    ],
)
def test_no_more_is_kept_on_the_broker_than_at_all(image: ClusterImage, configs: dict[str, str]) -> None:
    assert change(image, BROKER, *((key, SET, value) for key, value in configs.items())) == configs


def test_threads_grow_by_doubling(image: ClusterImage) -> None:
    config = BrokerConfig()
    for count in ("16", "32", "64"):
        after = {"num.io.threads": count}
        alteration = Alteration(BROKER, [ConfigChange("num.io.threads", count)])
        assert alter_configs(image, config, BrokerId(1), [alteration]).outcomes == [None]
        config = config.with_dynamic({}, after)


@pytest.mark.parametrize(("name", "node"), [(".", "%2E"), ("..", "%2E%2E")])
def test_a_group_whose_name_is_a_step_of_a_path(image: ClusterImage, name: str, node: str) -> None:
    resource = Resource(ConfigResourceType.GROUP, name)
    alteration = Alteration(resource, [ConfigChange("consumer.session.timeout.ms", "50000")])
    [write] = decide(image, alteration).operations
    assert write == Create(f"/config/groups/{node}", layout.config_value({"consumer.session.timeout.ms": "50000"}))
    old_tree = image.apply([Change(f"/config/groups/{name}", layout.config_value({}), 3)]).image
    [write] = decide(old_tree, alteration).operations
    assert isinstance(write, Set)
    assert (write.path, write.expected_version) == (f"/config/groups/{name}", 3)  # where it has stood all the time


def test_a_replacement_puts_back_what_it_does_not_name(image: ClusterImage) -> None:
    decided = decide(image, Alteration(TOPIC, [ConfigChange("segment.ms", "7")], replace=True))
    assert current(applied(image, decided.operations), TOPIC).configs == {"segment.ms": "7"}


def test_a_replacement_of_what_all_brokers_set_has_to_name_min_insync_replicas(image: ClusterImage) -> None:
    without = decide(image, Alteration(ALL_BROKERS, [ConfigChange("log.roll.ms", "7")], replace=True))
    assert without.outcomes == [Refusal(INVALID_CONFIG, ALWAYS_CLUSTER_LEVEL)]
    with_it = decide(image, Alteration(ALL_BROKERS, [ConfigChange("min.insync.replicas", "2")], replace=True))
    assert current(applied(image, with_it.operations), ALL_BROKERS).configs == {"min.insync.replicas": "2"}


def test_lists_are_appended_to_and_taken_from_beginning_with_the_default(image: ClusterImage) -> None:
    assert change(image, TOPIC, ("cleanup.policy", APPEND, "delete,compact"))["cleanup.policy"] == "compact,delete"
    assert change(image, TOPIC, ("cleanup.policy", SUBTRACT, "compact"))["cleanup.policy"] == ""
    throttle = "leader.replication.throttled.replicas"
    assert change(image, TOPIC, (throttle, APPEND, "0:1"))[throttle] == "0:1"
    assert change(image, BROKER, ("log.cleanup.policy", APPEND, "compact")) == {"log.cleanup.policy": "delete,compact"}


def test_a_listeners_own_keys_are_set_as_the_plain_ones_are(image: ClusterImage) -> None:
    location, most = "listener.name.plaintext.ssl.keystore.location", "listener.name.plaintext.max.connections"
    assert change(image, BROKER, (location, SET, "/x"), (most, SET, "9")) == {location: "/x", most: "9"}
    assert current(image, ALL_BROKERS).configs | {most: "9"} == change(image, ALL_BROKERS, (most, SET, "9"))


def test_every_kind_of_resource_keeps_its_own(image: ClusterImage) -> None:
    assert change(image, ALL_BROKERS, ("message.max.bytes", SET, "100000")) == {
        "min.insync.replicas": "1",
        "message.max.bytes": "100000",
    }
    assert change(image, GROUP, ("consumer.session.timeout.ms", SET, "50000")) == {
        "consumer.session.timeout.ms": "50000"
    }
    assert change(image, METRICS, ("interval.ms", SET, "1000")) == {"interval.ms": "1000"}
    assert change(image, BROKER, ("listener.name.x.ssl.y", SET, "kept though unknown")) != {}


def test_nothing_is_written_when_nothing_changes(image: ClusterImage) -> None:
    decided = decide(image, Alteration(TOPIC, [ConfigChange("retention.ms", "5")]))
    assert (decided.operations, decided.outcomes) == ([], [None])


def test_changes_of_several_resources_are_one_commit(image: ClusterImage) -> None:
    decided = decide(
        image,
        Alteration(TOPIC, [ConfigChange("retention.ms", "6")]),
        Alteration(BROKER, [ConfigChange("nope", None)]),
        Alteration(ALL_BROKERS, [ConfigChange("message.max.bytes", "100000")]),
    )
    assert [operation.path for operation in decided.operations if not isinstance(operation, Check)] == [
        "/config/topics/t",
        "/config/brokers/<default>",
    ]
    assert [outcome is None for outcome in decided.outcomes] == [True, False, True]


def test_a_resource_appears_once(image: ClusterImage) -> None:
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert decide(image, Alteration(TOPIC, []), Alteration(TOPIC, [])).outcomes == [twice, twice]


INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("resource", "changes", "code", "message"),
    [
        (TOPIC, [("nope", SET, "1")], INVALID_CONFIG, "Unknown topic config name: nope"),
        (TOPIC, [("retention.ms", SET, None)], INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (
            TOPIC,
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            TOPIC,
            [("retention.ms", APPEND, "5")],
            INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (TOPIC, [("retention.ms", 9, "5")], ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (BROKER, [("message.max.bytes", 9, "5")], INVALID_REQUEST, "Unknown operations type 9"),
        (
            Resource(ConfigResourceType.TOPIC, "missing"),
            [("retention.ms", SET, "1")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'missing' does not exist.",
        ),
        (
            Resource(ConfigResourceType.TOPIC, ""),
            [("retention.ms", SET, "1")],
            INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            BROKER,
            [("num.partitions", SET, "2")],
            INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            BROKER,
            [("message.max.bytes", SET, "x")],
            INVALID_REQUEST,
            "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        ),
        (
            ALL_BROKERS,
            [("ssl.keystore.type", SET, "JKS")],
            INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.type]",
        ),
        (
            BROKER,
            [("message.max.bytes", SUBTRACT, "5")],
            INVALID_CONFIG,
            "Config value subtract is not allowed for config key: message.max.bytes",
        ),
        (BROKER, [("nope", APPEND, "5")], INVALID_CONFIG, "Unknown config name: nope"),
        (
            Resource(ConfigResourceType.BROKER, "9"),
            [("message.max.bytes", SET, "1")],
            INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 9",
        ),
        (
            Resource(ConfigResourceType.BROKER, "abc"),
            [("message.max.bytes", SET, "1")],
            INVALID_REQUEST,
            "Node id must be an integer, but it is: abc",
        ),
        (
            GROUP,
            [("consumer.session.timeout.ms", SET, "1")],
            INVALID_CONFIG,
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (GROUP, [("foo", SET, "1")], INVALID_CONFIG, "Unknown group config name: foo"),
        (
            GROUP,
            [("share.session.timeout.ms", SET, "x"), ("share.foo", SET, "1")],
            INVALID_CONFIG,
            "Unknown group config name: share.foo",
        ),
        (
            GROUP,
            [("streams.num.standby.replicas", SET, "3"), ("share.delivery.count.limit", SET, "11")],
            INVALID_CONFIG,
            "share.delivery.count.limit must be in the range 2 to 10 inclusive.",
        ),
        (
            GROUP,
            [("streams.num.standby.replicas", SET, "3")],
            INVALID_CONFIG,
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            GROUP,
            [("share.isolation.level", SET, "READ_COMMITTED")],
            INVALID_CONFIG,
            "Invalid value READ_COMMITTED for configuration share.isolation.level: String must be one of: "
            "read_committed, read_uncommitted",
        ),
        (
            GROUP,
            [("share.auto.offset.reset", SET, "none")],
            INVALID_CONFIG,
            "Invalid value none for configuration share.auto.offset.reset: Invalid value `none` for configuration "
            "share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
            "'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (
            Resource(ConfigResourceType.GROUP, ""),
            [("foo", SET, "1")],
            INVALID_REQUEST,
            "Default group resources are not allowed.",
        ),
        (METRICS, [("zz", SET, "1")], INVALID_REQUEST, "Unknown client metrics configuration: zz"),
        (
            METRICS,
            [("match", SET, "x=1"), ("zz", SET, "1")],
            INVALID_REQUEST,
            "Unknown client metrics configuration: zz",
        ),
        (
            METRICS,
            [("interval.ms", SET, "99"), ("match", SET, "x=1")],
            INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            METRICS,
            [("interval.ms", SET, "x")],
            INVALID_CONFIG,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        (METRICS, [("metrics", SET, "a,,b")], INVALID_CONFIG, "Configuration 'metrics' values must not be empty."),
        *(
            (METRICS, [("match", SET, match)], INVALID_CONFIG, f"Illegal client matching pattern: {match}")
            for match in (
                "colour=red",
                "client_id",
                "client_id=",
                "client_id=a=b",
                "client_id=(",
                "client_id=[",
                "client_id=a**",
            )
        ),
        (
            TOPIC,
            [("cleanup.policy", SET, "delete,,compact")],
            INVALID_CONFIG,
            "Configuration 'cleanup.policy' values must not be empty.",
        ),
        (ALL_BROKERS, [("log.retention.ms", SET, "0")], INVALID_REQUEST, RETENTION),
        *(
            (
                resource,
                [(key, SET, value)],
                INVALID_REQUEST,
                f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for configuration Invalid "
                "dynamic configuration",
            )
            for resource in (BROKER, ALL_BROKERS)
            for key, value, reason in (
                (
                    "num.io.threads",
                    "3",
                    f"{THREADS} num.io.threads=3, value should be at least half the current value 8",
                ),
                (
                    "num.network.threads",
                    "7",
                    f"{THREADS} num.network.threads=7, value should not be greater than double the current value 3",
                ),
                (
                    "log.cleaner.threads",
                    "3",
                    "Log cleaner threads cannot be increased to more than double the current value 1",
                ),
                (
                    "log.local.retention.ms",
                    "604800001",
                    "Invalid value 604800001 for configuration log.local.retention.ms: Value must not be more than "
                    "log.retention.ms property value: 604800000",
                ),
                (
                    "log.local.retention.ms",
                    "-1",
                    "Invalid value -1 for configuration log.local.retention.ms: Value must not be -1 as "
                    "log.retention.ms value is set as 604800000.",
                ),
            )
        ),
        (
            Resource(ConfigResourceType.BROKER_LOGGER, "1"),
            [("kafka", SET, "DEBUG")],
            INVALID_CONFIG,
            "Logger kafka does not exist!",
        ),
        (
            BROKER,
            [("listener.name.plaintext.ssl.principal.mapping.rules", SET, "DEFAULT")],
            INVALID_REQUEST,
            "Configs cannot be updated dynamically for existing listener ListenerName(PLAINTEXT), restart broker or "
            "create a new listener for update",
        ),
        (
            ALL_BROKERS,
            [("listener.name.plaintext.ssl.keystore.location", SET, "/x")],
            INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.plaintext.ssl.keystore.location]",
        ),
        (
            BROKER,
            [("listener.name.plaintext.max.connections", SET, "many")],
            INVALID_REQUEST,
            "Invalid value many for configuration max.connections: Not a number of type INT",
        ),
        (Resource(7, "x"), [("a", SET, "1")], INVALID_REQUEST, "Unknown resource type 7"),
        (BROKER, [("min.insync.replicas", SET, "1")], INVALID_CONFIG, NO_BROKER_LEVEL),
        (BROKER, [("min.insync.replicas", DELETE, None)], INVALID_CONFIG, NO_BROKER_LEVEL),
        (ALL_BROKERS, [("min.insync.replicas", DELETE, None)], INVALID_CONFIG, ALWAYS_CLUSTER_LEVEL),
        (
            BROKER,
            [("min.insync.replicas", SET, "x")],
            INVALID_REQUEST,
            "Invalid value x for configuration min.insync.replicas: Not a number of type INT",
        ),
    ],
)
def test_refusals_are_apache_kafkas(
    image: ClusterImage,
    resource: Resource,
    changes: list[tuple[str, int, str | None]],
    code: ErrorCode,
    message: str | None,
) -> None:
    assert refusal(image, resource, *changes) == Refusal(code, message)


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize(
    ("session_ms", "heartbeat_ms", "accepted"),
    [(None, "45000", False), ("5000", None, False), ("46000", "46000", False), ("46001", "46000", True)],
)
def test_a_groups_session_outlasts_its_heartbeats(
    image: ClusterImage, kind: str, session_ms: str | None, heartbeat_ms: str | None, accepted: bool
) -> None:
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    bounds = {f"group.{kind}.min.session.timeout.ms": "1", f"group.{kind}.max.heartbeat.interval.ms": "60000"}
    expected = [(session, session_ms), (heartbeat, heartbeat_ms)]
    changes = [ConfigChange(key, text) for key, text in expected if text is not None]
    (outcome,) = alter_configs(image, BrokerConfig(bounds), BrokerId(1), [Alteration(GROUP, changes)]).outcomes
    message = f"{session} must be greater than {heartbeat}"
    assert outcome == (None if accepted else Refusal(INVALID_CONFIG, message))


@pytest.mark.parametrize(
    ("protocols", "sentence"),
    [
        (
            "FOO:PLAINTEXT",
            "Error creating broker listeners from '[PLAINTEXT://:9092]': No security protocol defined for listener "
            "PLAINTEXT",
        ),
        ("", "Error creating broker listeners from"),
        ("PLAINTEXT:NONE", "Invalid security protocol `NONE` defined in listener.security.protocol.map"),
        ("nonsense", "Error parsing configuration property 'listener.security.protocol.map'"),
        (
            "PLAINTEXT:SSL",
            "Invalid value org.apache.kafka.common.config.ConfigException: Security protocol cannot be updated for "
            "existing listener ListenerName(PLAINTEXT) for configuration Invalid dynamic configuration",
        ),
    ],
)
def test_a_listener_that_is_there_keeps_its_protocol(image: ClusterImage, protocols: str, sentence: str) -> None:
    result = refusal(image, BROKER, ("listener.security.protocol.map", SET, protocols))
    assert result.error_code is ErrorCode.INVALID_REQUEST
    assert str(result.message).startswith(sentence)
    more = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FOO:SSL"}
    assert change(image, BROKER, *((key, SET, value) for key, value in more.items())) == more
