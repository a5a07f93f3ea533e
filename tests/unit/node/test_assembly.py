from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import cast

import pytest

from oncelog.base.ids import NO_BROKER, BrokerId, TopicId, TopicName, TopicPartition
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.entities.entity_writes import write_entities
from oncelog.core.controller.image.client_entities import ClientEntity
from oncelog.core.controller.image.cluster_image import configs_of, load_image
from oncelog.core.controller.resources import ALL_BROKERS, ConfigResourceType, Resource, current, write_configs
from oncelog.core.controller.topics.changes import NewTopic, create_topics, delete_topics
from oncelog.core.sasl.initial_users import initial_user_text
from oncelog.core.sasl.scram_credentials import credential_of
from oncelog.node.assembly import Assembled, Outside, StartRefused, assemble, check_before_a_new_tree
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.ports import Coordination, Operation, OutcomeUnknown, SessionLost, TreeUnavailable
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.checkpoints import replace_file
from oncelog.storage.file_names import META_PROPERTIES
from oncelog.storage.log.append import append_batch
from oncelog.storage.log_config import LogConfig
from oncelog.storage.meta_properties import read_meta_properties
from tests.unit.storage.support import batch

OWN = Resource(ConfigResourceType.BROKER, "1")


class SeededEntropy:
    """Random bytes, the same in every run."""

    def __init__(self) -> None:
        self.token = random.Random(1).randbytes


def started(files: MemoryFiles, session: Coordination, min_insync_replicas: str) -> dict[str, str]:
    """The settings of all brokers once a broker configured so has joined."""
    settings = read_settings({"min.insync.replicas": min_insync_replicas, "log.sync.policy": "none"})
    assembled = assemble(
        Outside(files, session, SeededEntropy()), settings, {"PLAINTEXT": ("localhost", 9092)}, now_ms=0
    )
    assert assembled.reports == []
    return dict(current(load_image(session.subtree("/")), ALL_BROKERS).configs)


def test_a_new_cluster_begins_with_the_configured_min_insync_replicas_and_keeps_them() -> None:
    files, tree = MemoryFiles(), MemoryTree()
    session = tree.session()
    assert started(files, session, "2") == {"min.insync.replicas": "2"}
    session.close()
    assert started(files, tree.session(), "3") == {"min.insync.replicas": "2"}


def test_a_cluster_of_an_earlier_version_keeps_what_was_set_for_its_broker_while_it_ran() -> None:
    files, tree = MemoryFiles(), MemoryTree()
    session = tree.session()
    started(files, session, "2")
    image = load_image(session.subtree("/"))
    earlier = [write_configs(current(image, ALL_BROKERS), {"log.roll.ms": "7"})]
    session.commit([*earlier, write_configs(current(image, OWN), {"min.insync.replicas": "3"})])
    session.close()
    session = tree.session()
    assert started(files, session, "2") == {"log.roll.ms": "7", "min.insync.replicas": "3"}
    assert current(load_image(session.subtree("/")), OWN).configs == {}


def joined(files: MemoryFiles, session: Coordination, **settings: str) -> Assembled:
    """A broker after it has joined, its directory as it is."""
    named = read_settings({key.replace("_", "."): text for key, text in settings.items()})
    return assemble(Outside(files, session, SystemEntropy()), named, {"PLAINTEXT": ("localhost", 9092)}, now_ms=0)


class SystemEntropy:
    """Random bytes, never the same twice."""

    _numbers = random.Random(2)

    def token(self, size: int) -> bytes:
        return self._numbers.randbytes(size)


def test_ids_that_are_not_configured_count_up_from_one_and_stay() -> None:
    tree = MemoryTree()
    disks = [MemoryFiles() for _ in range(3)]
    sessions = [tree.session() for _ in disks]
    ids = [joined(files, session).node.cluster.broker_id for files, session in zip(disks, sessions, strict=True)]
    assert ids == [1, 2, 3]
    sessions[1].close()
    assert joined(MemoryFiles(), tree.session()).node.cluster.broker_id == 4, "2 is somebody's"
    assert joined(disks[1], tree.session()).node.cluster.broker_id == 2


def test_a_new_directory_takes_another_id_when_somebody_was_faster() -> None:
    tree = MemoryTree()
    session, other = tree.session(), tree.session()
    files = MemoryFiles()

    def overtaken() -> None:
        joined(MemoryFiles(), other)

    settings = read_settings({})
    outside = Outside(files, session, SystemEntropy())
    assembled = assemble(outside, settings, {"PLAINTEXT": ("localhost", 9092)}, now_ms=0, ready=overtaken)
    assert assembled.node.cluster.broker_id == 2
    meta = read_meta_properties(files)
    assert meta is not None
    assert (meta.node_id, meta.cluster_id) == (2, load_image(session.subtree("/")).cluster_id)


def test_a_new_directory_belongs_to_the_cluster_of_the_tree_and_an_old_one_to_its_own() -> None:
    tree, elsewhere = MemoryTree(), MemoryTree()
    files = MemoryFiles()
    joined(MemoryFiles(), tree.session())
    joined(files, tree.session())
    joined(MemoryFiles(), elsewhere.session())
    with pytest.raises(StartRefused, match=r"^the data directory belongs to cluster .{22}, but the coordination tree"):
        joined(files, elsewhere.session())


def test_an_id_that_is_configured_and_in_use_is_refused() -> None:
    tree = MemoryTree()
    joined(MemoryFiles(), tree.session(), node_id="7")
    with pytest.raises(
        StartRefused, match=r"^a broker with id 7 is already running in this cluster, at localhost:9092"
    ):
        joined(MemoryFiles(), tree.session(), node_id="7")


def test_a_broker_is_registered_when_its_logs_are_open_and_others_can_connect() -> None:
    tree = MemoryTree()
    session = tree.session()
    seen = []
    outside = Outside(MemoryFiles(), session, SystemEntropy())

    def ready() -> None:
        seen.append(session.children("/brokers/ids"))

    assemble(outside, read_settings({}), {"PLAINTEXT": ("localhost", 9092)}, now_ms=0, ready=ready)
    assert seen == [[]]
    assert session.children("/brokers/ids") == ["1"]


def test_a_log_whose_replicas_are_elsewhere_is_set_aside() -> None:
    tree = MemoryTree()
    files, session = MemoryFiles(), tree.session()
    first = joined(files, session, node_id="1")
    joined(MemoryFiles(), tree.session(), node_id="2")
    image = load_image(session.subtree("/"))
    topic = NewTopic("t", assignments=[(0, [1]), (1, [2])])
    topic_id = TopicId(bytes(15) + b"\1")
    session.commit(create_topics(image, first.node.cluster.config, [topic], lambda: topic_id).operations)
    for index in (0, 1):
        first.node.logs.create(TopicPartition(TopicName("t"), index), topic_id, LogConfig(), now_ms=0)
    session.close()
    again = joined(files, tree.session(), node_id="1")
    [report] = again.reports
    assert re.fullmatch(
        r"t-1 has its replicas on other brokers: it is set aside as t-1\.[0-9a-f]{32}-stray", report.message
    )
    assert [str(partition) for partition in again.node.logs.logs] == ["t-0"]


def test_a_log_whose_topic_was_made_anew_while_logs_were_recovered_is_set_aside() -> None:
    tree = MemoryTree()
    files, session, other = MemoryFiles(), tree.session(), tree.session()
    first = joined(files, session, node_id="1")
    config = first.node.cluster.config

    def create(number: int) -> TopicId:
        topic_id = TopicId(bytes(15) + bytes([number]))
        image = load_image(other.subtree("/"))
        topic = NewTopic("t", assignments=[(0, [1])])
        other.commit(create_topics(image, config, [topic], lambda: topic_id).operations)
        return topic_id

    first.node.logs.create(TopicPartition(TopicName("t"), 0), create(1), LogConfig(), now_ms=0)
    session.close()

    def made_anew() -> None:
        image = load_image(other.subtree("/"))
        other.commit(delete_topics(image, [image.topics[TopicName("t")]]))
        create(2)

    settings = read_settings({"node.id": "1"})
    outside = Outside(files, tree.session(), SystemEntropy())
    again = assemble(outside, settings, {"PLAINTEXT": ("localhost", 9092)}, now_ms=0, ready=made_anew)
    [report] = again.reports
    assert re.fullmatch(
        r"t-0 belongs to no topic of this cluster: it is set aside as t-0\.[0-9a-f]{32}-stray", report.message
    )
    assert again.node.logs.logs == {}


def test_directories_that_have_changed_places_are_set_aside_by_name() -> None:
    tree = MemoryTree()
    files, session = MemoryFiles(), tree.session()
    first = joined(files, session)
    for number, name in enumerate((TopicName("a"), TopicName("b")), 1):
        topic_id = TopicId(bytes(15) + bytes([number]))
        image = load_image(session.subtree("/"))
        topic = NewTopic(name, assignments=[(0, [1])])
        session.commit(create_topics(image, first.node.cluster.config, [topic], lambda: topic_id).operations)  # noqa: B023
        first.node.logs.create(TopicPartition(name, 0), topic_id, LogConfig(), now_ms=0)
    first.node.logs.close()
    session.close()
    for old, new in (("a-0", "x-0"), ("b-0", "a-0"), ("x-0", "b-0")):
        files.rename(old, new)
    messages = [report.message for report in joined(files, tree.session()).reports]
    assert [message.partition(": it is set aside as ")[0] for message in messages] == [
        "a-0 has the id of topic b",
        "b-0 has the id of topic a",
    ]


T0 = TopicPartition(TopicName("t"), 0)


def stopped_pair_with_a_log(tree: MemoryTree) -> list[MemoryFiles]:
    """The disks of brokers 1 and 2, both in sync, after they have stopped: each has a record on the disk."""
    disks, sessions = [MemoryFiles(), MemoryFiles()], [tree.session(), tree.session()]
    nodes = [joined(disks[index], sessions[index], node_id=str(index + 1)).node for index in range(2)]
    image = load_image(sessions[0].subtree("/"))
    topic = NewTopic("t", assignments=[(0, [1, 2])])
    topic_id = TopicId(bytes(15) + b"\1")
    sessions[0].commit(create_topics(image, nodes[0].cluster.config, [topic], lambda: topic_id).operations)
    for node, session in zip(nodes, sessions, strict=True):
        log = node.logs.create(T0, topic_id, LogConfig(), now_ms=0)
        append_batch(log, batch(timestamp=0), now_ms=0, leader_epoch=0)
        node.logs.close()
        session.close()
    return disks


def test_a_broker_whose_log_is_missing_leaves_the_in_sync_set_and_says_so() -> None:
    tree = MemoryTree()
    files, other_files = stopped_pair_with_a_log(tree)
    files.remove("t-0")
    session, other = tree.session(), tree.session()
    [report] = joined(files, session, node_id="1").reports
    assert report.message.startswith("t-0 is missing: its directory is gone, and its records from offset 0 on were on")
    assert joined(other_files, other, node_id="2").reports == []
    image = load_image(session.subtree("/"))
    partition = image.partition(T0)
    assert partition is not None
    assert (partition.leader, partition.isr) == (NO_BROKER, (2,)), "2 is elected, and 1 copies from it"
    session.close()
    assert joined(files, tree.session(), node_id="1").reports == [], "it is forgotten with the next checkpoint"


def test_the_log_of_a_topic_that_was_deleted_before_the_last_checkpoint_is_not_missed() -> None:
    tree = MemoryTree()
    files, _ = stopped_pair_with_a_log(tree)
    files.remove("t-0")
    session = tree.session()
    image = load_image(session.subtree("/"))
    session.commit(delete_topics(image, [image.topics[TopicName("t")]]))
    assert joined(files, session, node_id="1").reports == []


def broker_with_a_log(files: MemoryFiles, tree: MemoryTree) -> str:
    """The cluster's id."""
    session = tree.session()
    node = joined(files, session).node
    node.logs.create(TopicPartition(TopicName("t"), 0), TopicId(bytes(15) + b"\1"), LogConfig(), now_ms=0)
    node.logs.close()
    session.close()
    cluster_id = load_image(tree.session().subtree("/")).cluster_id
    assert cluster_id is not None
    return cluster_id


def test_logs_without_a_tree_are_not_set_aside_but_refused() -> None:
    files = MemoryFiles()
    cluster_id = broker_with_a_log(files, MemoryTree())
    with pytest.raises(StartRefused, match=rf"tree is empty, but .* logs \(t-0\) of cluster {cluster_id}: .* restore"):
        joined(files, MemoryTree().session())
    assert "t-0" in files.list("")


def test_logs_without_an_identity_and_a_tree_are_refused_until_the_backup_is_restored() -> None:
    files = MemoryFiles()
    broker_with_a_log(files, MemoryTree())
    files.remove(META_PROPERTIES)
    with pytest.raises(
        StartRefused, match=r"tree is empty, but .* logs \(t-0\): .* restore the tree and the directory"
    ):
        joined(files, MemoryTree().session())
    assert META_PROPERTIES not in files.list("")


def write_identity(files: MemoryFiles, *lines: str) -> None:
    replace_file(files, META_PROPERTIES, "\n".join(lines).encode())


@pytest.mark.parametrize("configured", [{"node_id": "1"}, {}])
def test_logs_without_an_identity_are_refused_until_it_is_written_again(configured: dict[str, str]) -> None:
    """With the lines that the refusal names the broker is the one it was, its logs in sync, its restart its own."""
    tree = MemoryTree()
    files, _ = stopped_pair_with_a_log(tree)
    was = read_meta_properties(files)
    assert was is not None
    files.remove(META_PROPERTIES)
    own = f"node.id=1 directory.id={was.directory_id}"
    if not configured:
        own = f"those that this broker had: {own}, or node.id=2 directory.id="
    lines = rf"meta.properties is missing, .* logs \(t-0\): .* cluster.id={was.cluster_id} and {own}"
    with pytest.raises(StartRefused, match=lines):
        joined(files, tree.session(), **configured)
    assert META_PROPERTIES not in files.list("")
    write_identity(files, f"cluster.id={was.cluster_id}", "node.id=1", f"directory.id={was.directory_id}")
    session = tree.session()
    joined(files, session, **configured).node.logs.close()
    joined(files, session, **configured)
    image = load_image(session.subtree("/"))
    partition = image.partition(T0)
    assert partition is not None
    assert (image.brokers[BrokerId(1)].fenced, partition.isr) == (False, (1, 2))


def test_logs_beside_an_identity_without_the_directory_s_are_refused() -> None:
    """The broker would count as a new one, which has none of the records."""
    tree = MemoryTree()
    files, _ = stopped_pair_with_a_log(tree)
    was = read_meta_properties(files)
    assert was is not None
    write_identity(files, f"cluster.id={was.cluster_id}", "node.id=1")
    with pytest.raises(StartRefused, match=rf"logs \(t-0\): .* node 1, add the line directory.id={was.directory_id}$"):
        joined(files, tree.session())


def test_an_identity_without_the_directory_s_is_given_one() -> None:
    tree, files = MemoryTree(), MemoryFiles()
    write_identity(files, "cluster.id=c", "node.id=3")
    joined(files, tree.session())
    written = read_meta_properties(files)
    assert written is not None
    assert (written.cluster_id, written.node_id, len(written.directory_id)) == ("c", 3, 22)
    joined(files, tree.session())  # the first one's session still lives


@pytest.mark.parametrize("name", ["notes-1", "2026-01/notes.txt", "2026-01/00000000000000000000.log", "notes-1/a"])
def test_a_new_broker_starts_beside_files_that_are_no_logs(name: str) -> None:
    files = MemoryFiles()
    directory, separator, _ = name.rpartition("/")
    if separator:
        files.make_directory(directory)
    files.open(name, create=True).close()
    check_before_a_new_tree(files)
    joined(files, MemoryTree().session())


def test_a_directory_without_logs_may_join_a_new_tree() -> None:
    files = MemoryFiles()
    joined(files, MemoryTree().session())
    joined(files, MemoryTree().session())


def test_a_new_cluster_begins_with_the_configured_users_who_do_not_come_back_when_they_were_deleted() -> None:
    credential = credential_of("SCRAM-SHA-512", "secret", b"salt", 4096)
    settings = {"oncelog.initial.users": initial_user_text("al ice;=", "SCRAM-SHA-512", credential)}
    files, tree = MemoryFiles(), MemoryTree()
    session = tree.session()
    joined(files, session, **settings)
    image = load_image(session.subtree("/"))
    alice = ClientEntity(user="al ice;=")
    assert configs_of(image, alice) == {"SCRAM-SHA-512": credential.text()}
    session.commit(write_entities(image, {alice: {}}))
    session.close()
    session = tree.session()
    joined(files, session, **settings)
    assert configs_of(load_image(session.subtree("/")), alice) == {}


@pytest.mark.parametrize(
    "text", ["alice", "=SCRAM-SHA-256:x", "alice=PLAIN:secret", "alice=SCRAM-SHA-256:salt=c2VjcmV0,iterations=1"]
)
def test_initial_users_that_cannot_be_read_refuse_the_start_without_being_quoted(text: str) -> None:
    with pytest.raises(StartRefused, match=r"oncelog\.initial\.users: cannot read user 1") as refused:
        joined(MemoryFiles(), MemoryTree().session(), **{"oncelog.initial.users": text})
    assert "secret" not in str(refused.value)
    assert "c2VjcmV0" not in str(refused.value)


class Interrupted:
    """A session whose next commits fail with ``errors``, after they are written if the outcome is unknown."""

    def __init__(self, session: Coordination, errors: list[Exception]) -> None:
        self._session = session
        self._errors = errors

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        if not self._errors:
            return self._session.commit(operations, token)
        error = self._errors.pop(0)
        if isinstance(error, OutcomeUnknown):
            self._session.commit(operations, token)
        raise error

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)


@pytest.mark.parametrize("error", [TreeUnavailable("busy"), SessionLost("paused"), OutcomeUnknown("reply lost")])
def test_a_broker_whose_registration_is_interrupted_joins_at_the_next_attempt(error: Exception) -> None:
    session = Interrupted(MemoryTree().session(), [error] * 4)
    joined(MemoryFiles(), cast("Coordination", session), node_id="7")
    assert list(load_image(session._session.subtree("/")).brokers) == [7]


def test_a_broker_is_refused_if_the_tree_stays_unavailable() -> None:
    session = Interrupted(MemoryTree().session(), [TreeUnavailable("another process holds the lock")] * 50)
    with pytest.raises(StartRefused, match=r"unavailable while .* \(TreeUnavailable: another process .* start the"):
        joined(MemoryFiles(), cast("Coordination", session))
