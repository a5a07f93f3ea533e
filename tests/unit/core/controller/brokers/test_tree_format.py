"""The format of the tree while versions change; "the next version" knows one format more than this one."""

from __future__ import annotations

import pytest

from oncelog.base.ids import BrokerId
from oncelog.base.tree import Conflict, Delete
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.brokers.registration import Registration, RegistrationRefused, register
from oncelog.core.controller.brokers.tree_format import KNOWN_FORMATS, raise_format
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, load_image
from oncelog.core.controller.image.model import TreeFormats
from tests.unit.core.controller.cluster import applied

EARLIER = TreeFormats()
NEXT = TreeFormats(KNOWN_FORMATS.newest, KNOWN_FORMATS.newest + 1)


def joining(number: int, formats: TreeFormats = KNOWN_FORMATS) -> Registration:
    return Registration(BrokerId(number), "h", 9092, None, "c", directory_id=f"d{number}", tree_formats=formats)


def made_of(*formats: TreeFormats) -> ClusterImage:
    """A cluster of brokers 1, 2, …, each knowing these formats, that has settled."""
    image = EMPTY_IMAGE
    for number, each in enumerate(formats, 1):
        image = applied(image, register(image, joining(number, each), 0))
        image = applied(image, raise_format(image))
    return image


def test_a_new_cluster_has_the_newest_format() -> None:
    image = made_of(KNOWN_FORMATS, KNOWN_FORMATS)
    assert image.tree_format == KNOWN_FORMATS.newest
    assert raise_format(image) == []


def test_registrations_that_do_not_say_what_they_know_know_the_first() -> None:
    assert layout.read_broker("/brokers/ids/1", b'{"host":"h","port":1,"features":{}}', 0).tree_formats == EARLIER


def test_it_rises_when_the_last_broker_of_the_earlier_version_has_gone() -> None:
    image = made_of(KNOWN_FORMATS, NEXT, NEXT)
    assert image.tree_format == KNOWN_FORMATS.newest, "one that knows no more is alive"
    image = applied(image, [Delete(layout.broker_path(BrokerId(1)), 0)])
    image = applied(image, raise_format(image))
    assert image.tree_format == NEXT.newest
    with pytest.raises(RegistrationRefused, match=f"has format {NEXT.newest}.*up to {KNOWN_FORMATS.newest}; start"):
        register(image, joining(1), 0)
    assert applied(image, register(image, joining(1, NEXT), 0)).tree_format == NEXT.newest


def test_a_version_that_does_not_know_the_format_any_more() -> None:
    after_next = TreeFormats(NEXT.newest, NEXT.newest + 1)
    with pytest.raises(RegistrationRefused, match="an intermediate version first"):
        register(made_of(KNOWN_FORMATS), joining(2, after_next), 0)


def test_nobody_joins_past_the_rise() -> None:
    """Neither where the tree has said its format before, nor where it is said for the first time."""
    for first in (KNOWN_FORMATS, EARLIER):
        tree = MemoryTree().session()
        image = EMPTY_IMAGE
        tree.commit(register(image, joining(1, first), 0))
        image = load_image(tree.subtree("/"))
        tree.commit([Delete(layout.broker_path(BrokerId(1)), 0)])
        image = load_image(tree.subtree("/"))
        tree.commit(register(image, joining(2, TreeFormats(1, NEXT.newest)), 0))
        image = load_image(tree.subtree("/"))
        late = register(image, joining(1, first), 0)
        tree.commit(raise_format(image))
        with pytest.raises(Conflict):
            tree.commit(late)
        with pytest.raises(RegistrationRefused):
            register(load_image(tree.subtree("/")), joining(1, first), 0)
