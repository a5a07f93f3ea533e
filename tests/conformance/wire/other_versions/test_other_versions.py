"""The versions that kio lacks, byte for byte as Apache Kafka 3.9.1 and 4.4.0 have them."""

from __future__ import annotations

import json

import pytest

from oncelog.base.errors import PeerError
from oncelog.wire.chunks import join_chunks
from tests.conformance.wire.other_versions.samples import GOLDEN, message_class, samples

RECORDED = json.loads(GOLDEN.read_text(encoding="utf-8"))
NAMES = sorted({name for name, _version, _digits in RECORDED})


def test_all_versions_are_recorded() -> None:
    assert [(sample.name, sample.version) for sample in samples()] == [(name, version) for name, version, _ in RECORDED]


@pytest.mark.parametrize("name", NAMES)
def test_messages_have_the_bytes_of_apache_kafka_and_are_read_from_them(name: str) -> None:
    for one, (_, version, digits) in zip(samples(), RECORDED, strict=True):
        if one.name == name:
            data = bytes.fromhex(digits)
            assert join_chunks(one.message.encode(version)) == data
            assert type(one.message).decode(data, version) == one.message


@pytest.mark.parametrize("name", NAMES)
def test_a_message_that_is_cut_is_refused(name: str) -> None:
    kind = message_class(name)
    for _, version, digits in (row for row in RECORDED if row[0] == name):
        data = bytes.fromhex(digits)
        for end in range(len(data)):
            with pytest.raises(PeerError):
                kind.decode(data[:end], version)
