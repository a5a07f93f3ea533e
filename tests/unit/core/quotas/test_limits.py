from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.quotas.limits import ANY, MAX_LENGTH, Client, Key, Limits

PRECEDENCE: list[Key] = [
    ("u", "c"),
    ("u", ANY),
    ("u", None),
    (ANY, "c"),
    (ANY, ANY),
    (ANY, None),
    (None, "c"),
    (None, ANY),
]
"""Apache Kafka's, the most specific first."""


def limits_of(*keys: Key) -> Limits:
    limits = Limits()
    for key in keys:
        limits.set(key, float(PRECEDENCE.index(key)))
    return limits


@pytest.mark.parametrize("keys", [keys for count in range(1, 9) for keys in itertools.combinations(PRECEDENCE, count)])
def test_the_most_specific_limit_holds(keys: tuple[Key, ...]) -> None:
    limits = limits_of(*keys)
    client = limits.shared_by("u", "c")
    assert client is not None
    assert limits.limit(client) == PRECEDENCE.index(keys[0])


@pytest.mark.parametrize(
    ("key", "client"),
    [
        (("u", "c"), Client("u", "c")),
        (("u", ANY), Client("u", "c")),
        (("u", None), Client("u", "")),
        ((ANY, "c"), Client("u", "c")),
        ((ANY, ANY), Client("u", "c")),
        ((ANY, None), Client("u", "")),
        ((None, "c"), Client("", "c")),
        ((None, ANY), Client("", "c")),
    ],
)
def test_who_shares_a_limit(key: Key, client: Client) -> None:
    assert limits_of(key).shared_by("u", "c") == client


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_client_without_an_id_has_only_limits_of_its_user(client_id: str | None) -> None:
    assert limits_of((None, ANY)).shared_by("u", client_id) is None
    assert limits_of((ANY, None)).shared_by("u", client_id) == Client("u", "")
    limits = limits_of(("u", ANY))
    client = limits.shared_by("u", client_id)
    assert client == Client("u", "")
    assert limits.limit(client) is None  # as in Apache Kafka: set for client ids, and it has none


@given(st.lists(st.sampled_from(PRECEDENCE)), st.sampled_from(["u", "v"]), st.sampled_from(["c", "d"]))
def test_a_limit_that_is_taken_away_holds_no_longer(keys: list[Key], user: str, client_id: str) -> None:
    limits = limits_of(*keys)
    for key in keys:
        limits.set(key, None)
    assert not limits
    assert limits.shared_by(user, client_id) is None


def test_long_names_are_cut_where_the_limit_is_not_their_own() -> None:
    long, other = "c" * 30_000, "c" * 30_001
    for keys in ([(None, ANY)], [(ANY, ANY)], [("u", ANY)], [(ANY, None)]):
        limits = Limits()
        for key in keys:
            limits.set(key, 7.0)
        clients = [limits.shared_by(user, client_id) for user, client_id in (("u", long), ("u", other), (long, "c"))]
        for client in clients:
            assert client is None or (max(map(len, client)) <= MAX_LENGTH and limits.limit(client) == 7.0)
        assert clients[0] is not None
        assert keys == [(ANY, None)] or clients[0] != clients[1]
    own = Limits()
    own.set((None, long), 5.0)
    own.set((None, ANY), 7.0)
    assert [own.limit(client) for name in (long, other) if (client := own.shared_by("u", name))] == [5.0, 7.0]
