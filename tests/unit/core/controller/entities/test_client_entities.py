from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.tree import Conflict, TreeNode
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.entities.entity_writes import write_entities
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.client_entities import (
    DEFAULT,
    ClientEntity,
    desanitise,
    entity_at,
    entity_path,
    sanitise,
)
from oncelog.core.controller.image.cluster_image import changes_of, configs_of, load_image
from oncelog.core.controller.image.diff import delta_between
from tests.unit.core.controller.cluster import applied, cluster

USER = ClientEntity("u")
CLIENT = ClientEntity(client_id="c")
BOTH = ClientEntity("u", "c")
IP = ClientEntity(ip="127.0.0.1")

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
entities = st.one_of(
    names.map(lambda name: ClientEntity(user=name)),
    names.map(lambda name: ClientEntity(client_id=name)),
    names.map(lambda name: ClientEntity(ip=name)),
    st.tuples(names, names).map(lambda pair: ClientEntity(*pair)),
)


@pytest.mark.parametrize(
    ("name", "sanitised"),
    [
        # as org.apache.kafka.common.utils.Sanitizer answers
        ("CN=a b,O=C/D*", "CN%3Da%20b%2CO%3DC%2FD%2A"),
        ("a+b%c~d_e-f.g", "a%2Bb%25c%7Ed_e-f.g"),
        ("ü<default>", "%C3%BC%3Cdefault%3E"),
    ],
)
def test_names_are_sanitised_as_apache_kafka_does(name: str, sanitised: str) -> None:
    assert sanitise(name) == sanitised
    assert desanitise(sanitised) == name


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (USER, "/config/users/u"),
        (CLIENT, "/config/clients/c"),
        (BOTH, "/config/users/u/clients/c"),
        (IP, "/config/ips/127.0.0.1"),
        (ClientEntity(DEFAULT), "/config/users/<default>"),
        (ClientEntity(DEFAULT, DEFAULT), "/config/users/<default>/clients/<default>"),
        (ClientEntity(client_id="<default>"), "/config/clients/%3Cdefault%3E"),
        (ClientEntity(".."), "/config/users/%2E%2E"),
    ],
)
def test_the_nodes_are_those_of_apache_kafka(entity: ClientEntity, path: str) -> None:
    assert entity_path(entity) == path
    assert entity_at(path) == entity


@given(entities)
def test_every_entity_has_a_path_of_its_own(entity: ClientEntity) -> None:
    path = entity_path(entity)
    assert entity_at(path) == entity
    assert not {"", ".", ".."} & set(path.split("/")[1:])


@pytest.mark.parametrize("path", ["/config/topics/t", "/config/users/u/clients", "/config/a/u/clients/c", "/a/b/c"])
def test_other_nodes_are_no_entities(path: str) -> None:
    assert entity_at(path) is None


def test_written_entities_are_in_the_image_and_survive_a_restart() -> None:
    tree, image = MemoryTree(), cluster()
    session = tree.session()
    session.commit(layout.missing_base([]), "base")
    expected = {BOTH: {"request_percentage": "5.0"}, USER: {"producer_byte_rate": "1.0"}, IP: {"connection_rate": "3"}}
    operations = write_entities(image, expected)
    session.commit(operations, "first")
    delta = image.apply(changes_of(operations))
    assert set(delta.client_entities) == {BOTH, USER, IP}
    assert {entity: configs_of(delta.image, entity) for entity in expected} == expected
    again = write_entities(
        delta.image, {BOTH: {}, USER: {"SCRAM-SHA-256": "salt=.."}, ClientEntity("u", "d"): {"a": "b"}}
    )
    session.commit(again, "second")
    now = applied(delta.image, again)
    assert (configs_of(now, BOTH), configs_of(now, USER)) == ({}, {"SCRAM-SHA-256": "salt=.."})
    assert load_image(session.subtree("/")).client_entities == now.client_entities


def test_what_is_set_already_is_not_written() -> None:
    image = applied(cluster(), write_entities(cluster(), {CLIENT: {"a": "1"}}))
    assert write_entities(image, {CLIENT: {"a": "1"}, USER: {}}) == []


def test_two_who_decide_on_the_same_image_conflict() -> None:
    tree, image = MemoryTree(), cluster()
    session = tree.session()
    session.commit(layout.missing_base([]), "base")
    session.commit(write_entities(image, {USER: {"a": "1"}}), "one")
    with pytest.raises(Conflict):
        session.commit(write_entities(image, {BOTH: {"a": "2"}}), "two")


def test_an_image_loaded_whole_names_the_entities_that_changed() -> None:
    old = load_image([TreeNode("/config/users/u", b'{"version":1,"config":{"a":"1"}}', 0)])
    new = load_image(
        [
            TreeNode("/config/users/u", b'{"version":1,"config":{"a":"1"}}', 2),
            TreeNode("/config/clients/c", b'{"version":1,"config":{"b":"1"}}', 0),
        ]
    )
    assert delta_between(old, new).client_entities == (CLIENT,)
    assert delta_between(new, old).client_entities == (CLIENT,)
    assert delta_between(old, old).client_entities == ()
