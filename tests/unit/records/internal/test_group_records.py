"""The records of ``__consumer_offsets`` and the consumer protocol, against bytes written by Apache Kafka 4.3.1."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.records.batch import iter_headers
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal import consumer_group_records, group_arrays
from oncelog.records.internal.consumer_group_records import (
    ConsumerGroupKey,
    CurrentMemberKey,
    CurrentMemberValue,
    TargetMemberKey,
    TargetMemberValue,
)
from oncelog.records.internal.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    read_subscription,
)
from oncelog.records.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    Unknown,
    decode_any_key,
    decode_any_offset_commit_value,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from oncelog.records.record import read_records

TOPIC_ID = TopicId(bytes.fromhex("88f829b748ed4243b705089af38374ad"))
MEMBER_ID = "cl-83fdfd86-2607-42fc-8125-d97f6fa84491"

# A partition of __consumer_offsets as a 4.3.1 broker wrote it: a simple commit, a commit with its own retention, and a
# kafka-python consumer that joins, is assigned, commits twice and leaves.
OFFSETS_LOG = bytes.fromhex(
    "0000000000000000000000740000000002c6f39a98000000000000000001a1fd298981000001a1fd298981ffffffffffffffffffff00000000"
    "0000000182010000001a000100026731000161000000005c0004000000000000000500000000056d657461000001a1fd29897701001088f829"
    "b748ed4243b705089af38374ad00000000000000000100000061000000000298ee4b0a000000000000000001a1fd2989a9000001a1fd2989a9"
    "ffffffffffffffffffff00000000000000015e0000001a0001000267310001620000000038000100000000000000070000000001a1fd2989a9"
    "000001a1fd607829000000000000000002000000570000000002b6f739d0000000000000000001a1fd2a9501000001a1fd2a9501ffffffffff"
    "ffffffffff00000000000000014a0000000e000200036b7067300003000000000000ffffffff000001a1fd2a94fd0000000000000000000000"
    "0003000000ef00000000020475e5f7000000000000000001a1fd2a950c000001a1fd2a950cffffffffffffffffffff0000000000000001f802"
    "0000000e000200036b7067dc0200030008636f6e73756d657200000001000572616e67650027636c2d38336664666438362d323630372d3432"
    "66632d383132352d643937663666613834343931000001a1fd2a9508000000010027636c2d38336664666438362d323630372d343266632d38"
    "3132352d643937663666613834343931ffff0002636c000a2f3132372e302e302e31000493e00000afc80000000d0000000000010001610000"
    "00000000000a00000000000000000000000000000000000004000000fe00000000024aad4314000000000000000001a1fd2a9577000001a1fd"
    "2a9577ffffffffffffffffffff000000000000000196030000000e000200036b7067fa0200030008636f6e73756d6572000000020005726"
    "16e67650027636c2d38336664666438362d323630372d343266632d383132352d643937663666613834343931000001a1fd2a957600000001"
    "0027636c2d38336664666438362d323630372d343266632d383132352d643937663666613834343931ffff0002636c000a2f3132372e302e30"
    "2e31000493e00000afc80000000d000000000001000161000000000000001900000000000100016100000002000000000000000100000000"
    "000000000000000005000000af0000000002259d3559000000000001000001a1fd2a95a1000001a1fd2a95a1ffffffffffffffffffff000000"
    "00000000027c0000001c000100036b7067000161000000015400040000000000000000ffffffff01000001a1fd2a95a001001088f829b748ed"
    "4243b705089af38374ad007c0000021c000100036b706700016100000000540004000000000000000a0000000001000001a1fd2a95a0010010"
    "88f829b748ed4243b705089af38374ad00"
)


def stored() -> list[tuple[bytes, bytes]]:
    pairs = []
    for position, header in iter_headers(OFFSETS_LOG):
        for record in read_records(OFFSETS_LOG, position, header, 1 << 20):
            assert record.key is not None
            assert record.value is not None
            pairs.append((record.key, record.value))
    return pairs


def test_every_key_and_value_of_a_real_broker_is_read_and_written_back_byte_for_byte() -> None:
    kinds = []
    for key, value in stored():
        decoded = decode_key(key)
        kinds.append(type(decoded))
        if isinstance(decoded, OffsetCommitKey):
            assert encode_offset_commit_key(*decoded) == key
            offset = decode_offset_commit_value(value)
            assert isinstance(offset, OffsetCommitValue)
            assert encode_offset_commit_value(offset) == value
        else:
            assert isinstance(decoded, GroupMetadataKey)
            assert encode_group_metadata_key(decoded.group) == key
            group = decode_group_metadata_value(value)
            assert isinstance(group, GroupMetadataValue)
            assert encode_group_metadata_value(group) == value
    assert (kinds.count(OffsetCommitKey), kinds.count(GroupMetadataKey)) == (4, 3)


def test_what_the_real_broker_meant() -> None:
    (_, simple), (_, retained), _, _, (group_key, group_value), *_ = stored()
    assert decode_offset_commit_value(simple) == OffsetCommitValue(5, 0, "meta", 1795248720247, -1, TOPIC_ID)
    assert decode_offset_commit_value(retained) == OffsetCommitValue(7, -1, "", 1795248720297, 1795252320297)
    assert decode_key(group_key) == GroupMetadataKey("kpg")
    group = decode_group_metadata_value(group_value)
    assert isinstance(group, GroupMetadataValue)
    (member,) = group.members
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == ("consumer", 2, "range", MEMBER_ID)
    assert (member.client_id, member.client_host) == ("cl", "/127.0.0.1")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (45_000, 300_000)
    assert decode_subscription(member.subscription).topics == ("a",)
    partitions = decode_assignment(member.assignment).partitions
    assert partitions == (TopicPartition(TopicName("a"), 0), TopicPartition(TopicName("a"), 1))


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    assert decode_key(None) == Unknown(None, "no key")
    assert isinstance(decode_key(b"\x00"), Unknown)
    assert decode_key(b"\x00\x03\x00\x01g") == ConsumerGroupKey("g")
    assert isinstance(decode_key(b"\x00\x05\x00\x01g"), Unknown)
    for version in (-1, 9, 17, 21, 32767):
        assert decode_key(version.to_bytes(2, "big", signed=True) + b"\x00\x01g") == Unknown(
            version, f"key of version {version}"
        )
    for decode in (decode_offset_commit_value, decode_group_metadata_value):
        assert isinstance(decode(b""), Unknown)
        assert decode(b"\x00\x05" + bytes(40))[:1] == (5,)  # type: ignore[index]  # Unknown is a tuple


VALUE = OffsetCommitValue(7, 3, "m", 11, 13, TOPIC_ID)
GROUP = GroupMetadataValue(
    "consumer",
    3,
    None,
    None,
    9,
    (MemberMetadata("m", "c", "/h", 1, 2, b"s", b"a", "static"), MemberMetadata("m", "c", "h", 4)),
)


@pytest.mark.parametrize("version", range(5))
def test_older_and_newer_versions_keep_what_they_have(version: int) -> None:
    offset = decode_offset_commit_value(encode_offset_commit_value(VALUE, version))
    assert isinstance(offset, OffsetCommitValue)
    assert (offset.offset, offset.metadata, offset.commit_timestamp) == (7, "m", 11)
    assert offset.leader_epoch == (3 if version >= 3 else -1)
    assert offset.expire_timestamp == (13 if version == 1 else -1)
    assert offset.topic_id == (TOPIC_ID if version == 4 else bytes(16))
    group = decode_group_metadata_value(encode_group_metadata_value(GROUP, version))
    assert isinstance(group, GroupMetadataValue)
    assert group.current_state_timestamp == (9 if version >= 2 else -1)
    assert [member.group_instance_id for member in group.members] == ["static" if version >= 3 else None, None]
    assert [member.rebalance_timeout_ms for member in group.members] == ([2, -1] if version >= 1 else [-1, -1])


def test_unknown_tagged_fields_are_skipped() -> None:
    data = encode_offset_commit_value(VALUE, 4)
    assert data[-18:-16] == b"\x00\x10"
    tagged = data[:-19] + b"\x02" + data[-18:] + b"\x05\x03abc"
    assert decode_offset_commit_value(tagged) == decode_offset_commit_value(data)


@given(st.sampled_from([pair for pair in stored() for _ in range(2)]), st.data())
def test_damaged_bytes_never_raise(pair: tuple[bytes, bytes], data: st.DataObject) -> None:
    for intact, decoders in (
        (pair[0], [decode_key]),
        (pair[1], [decode_offset_commit_value, decode_group_metadata_value]),
    ):
        damaged = bytearray(intact[: data.draw(st.integers(0, len(intact)))])
        for _ in range(data.draw(st.integers(0, 3))):
            if damaged:
                damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        for decode in decoders:
            decode(bytes(damaged))


TOPIC = TopicName("t")
PARTITIONS = (TopicPartition(TopicName("a"), 1), TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 2))


@pytest.mark.parametrize("version", range(4))
def test_the_consumer_protocol_in_every_version(version: int) -> None:
    subscription = Subscription((TOPIC,), b"u", PARTITIONS, 5, "rack")
    told = decode_subscription(encode_subscription(subscription, version))
    assert (told.topics, told.user_data) == (subscription.topics, subscription.user_data)
    assert told.owned_partitions == (PARTITIONS if version >= 1 else ())
    assert told.generation == (5 if version >= 2 else -1)
    assert told.rack == ("rack" if version >= 3 else None)
    assert decode_assignment(encode_assignment(Assignment(PARTITIONS, None), version)) == Assignment(PARTITIONS)


def test_a_newer_consumer_protocol_is_read_as_the_newest_known_and_nonsense_is_corrupt() -> None:
    newer = b"\x00\x09" + encode_subscription(Subscription((TOPIC,)))[2:] + b"more"
    assert decode_subscription(newer).topics == (TOPIC,)
    for data in (b"", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\xff\xff\xff\xfe"):
        with pytest.raises(CorruptBatch):
            decode_subscription(data)
        with pytest.raises(CorruptBatch):
            decode_assignment(data)


NAMES = st.text(max_size=140) | st.text("ab", min_size=120, max_size=300)
INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.builds(
    OffsetCommitValue,
    INT64,
    st.integers(-(2**31), 2**31 - 1),
    NAMES,
    INT64,
    st.just(-1),
    st.just(TOPIC_ID) | st.binary(min_size=16, max_size=16).map(TopicId) | st.just(TopicId(bytes(16))),
)


def spoilt(data: bytes, at: int, change: int, cut: int, tail: bytes) -> bytes:
    """Bytes of which one is changed and some are cut off or added."""
    changed = bytearray(data)
    changed[at % len(data)] ^= change
    return bytes(changed[: len(data) - cut]) + tail


SPOILING = st.tuples(
    st.integers(0, 400), st.integers(0, 255), st.integers(0, 3) | st.integers(0, 400), st.binary(max_size=30)
)


@given(NAMES, NAMES, st.integers(-(2**31), 2**31 - 1), SPOILING)
def test_the_usual_way_of_reading_keys_says_what_the_general_way_says(
    group: str, topic: str, partition: int, spoiling: tuple[int, int, int, bytes]
) -> None:
    key = encode_offset_commit_key(group, topic, partition)
    assert decode_key(key) == decode_any_key(key) == OffsetCommitKey(group, topic, partition)
    key = spoilt(key, *spoiling)
    assert decode_key(key) == decode_any_key(key)
    assert type(decode_key(key)) is type(decode_any_key(key))


@given(VALUES, st.integers(0, 4), SPOILING)
def test_the_usual_way_of_reading_offsets_says_what_the_general_way_says(
    written: OffsetCommitValue, version: int, spoiling: tuple[int, int, int, bytes]
) -> None:
    value = encode_offset_commit_value(written, version)
    assert decode_offset_commit_value(value) == decode_any_offset_commit_value(value)
    assert version < 4 or decode_offset_commit_value(value) == written
    value = spoilt(value, *spoiling)
    assert decode_offset_commit_value(value) == decode_any_offset_commit_value(value)
    assert type(decode_offset_commit_value(value)) is type(decode_any_offset_commit_value(value))


def test_the_topics_of_a_subscription_are_bounded_and_their_partitions_are_not_objects() -> None:
    def subscription(topics: int, partitions: int) -> bytes:
        name = struct.pack(">h", 0)
        listed = struct.pack(">i", partitions) + bytes(4 * partitions)
        return struct.pack(">hiii", 1, 0, -1, topics) + (name + listed) * topics

    _, owned = read_subscription(subscription(1, 1_000_000))
    assert len(owned[TopicName("")]) == 1_000_000
    _, owned = read_subscription(subscription(1 << 15, 2))
    assert len(owned[TopicName("")]) == 2 << 15
    with pytest.raises(CorruptBatch, match="32769 topics, at most 32768 are allowed"):
        read_subscription(subscription((1 << 15) + 1, 0))


@pytest.mark.parametrize("value", [TargetMemberValue, CurrentMemberValue])
def test_topics_of_few_partitions_are_written_and_read_as_those_of_many(
    monkeypatch: pytest.MonkeyPatch, value: type
) -> None:
    """One struct call for a topic of up to 31 partitions; the bytes and the values are those of the general way."""
    counts = {TopicId(bytes([count]) * 16): count for count in (0, 1, 2, 31, 32, 200)}
    assigned = {topic: dict.fromkeys(range(count), 7) for topic, count in counts.items()}
    target = {topic: tuple(range(count)) for topic, count in counts.items()}
    written = (
        CurrentMemberValue(8, 7, 0, assigned, assigned) if value is CurrentMemberValue else TargetMemberValue(target)
    )
    key = (CurrentMemberKey if value is CurrentMemberValue else TargetMemberKey)("g", "m")
    data = consumer_group_records.encode_value(written)
    assert consumer_group_records.decode_value(key, data) == written
    monkeypatch.setattr(group_arrays, "_TARGETS", [])
    monkeypatch.setattr(consumer_group_records, "_ASSIGNMENTS", [])
    assert consumer_group_records.decode_value(key, data) == written
    monkeypatch.setattr(group_arrays, "FEW", -1)
    monkeypatch.setattr(consumer_group_records, "FEW", -1)
    assert consumer_group_records.encode_value(written) == data


def test_topics_of_few_partitions_by_other_brokers_are_read() -> None:
    """Brokers before 4.3 wrote no epochs; newer ones may write more tagged fields."""
    topic, key = bytes(range(16)), CurrentMemberKey("g", "m")
    start, assigned = struct.pack(">hiibB", 0, 8, 7, 0, 2), b"\x02" + struct.pack(">i", 5)
    no_epochs, other_tag = b"\x00", b"\x01\x05\x02ab"
    for tags in (no_epochs, other_tag):
        value = consumer_group_records.decode_value(key, start + topic + assigned + tags + b"\x01\x00")
        assert value == CurrentMemberValue(8, 7, 0, {TopicId(topic): {5: 8}}, {})
    target = consumer_group_records.decode_value(
        TargetMemberKey("g", "m"), struct.pack(">hB", 0, 2) + topic + assigned + other_tag + b"\x00"
    )
    assert target == TargetMemberValue({TopicId(topic): (5,)})
