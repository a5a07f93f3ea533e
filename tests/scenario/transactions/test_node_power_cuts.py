"""Power cuts at every effect of a run with transactions, and at random moments of shuffled ones.

After the restart: a decided transaction has one outcome everywhere, offsets included, and it is the one its client was
told; an undecided one is open until its time is over and is then aborted; nothing else is left behind.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.node.coordinators.markers import MarkerSender
from oncelog.node.kernel.events import Send, Sync, WriteMetadata
from oncelog.node.logs.group_commit import GroupCommit
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import create_topic
from tests.scenario.transactions.node_client import (
    SETTINGS,
    SOURCE,
    TOPIC,
    Client,
    Steps,
    StepwiseDriver,
    committed_offset,
    open_producers,
    read,
    run,
    state_of,
)

PARTITIONS = range(3)
LONGER_THAN_ANY_TIMEOUT_MS = 40_000


class PowerCut(Exception):
    """The machine stopped."""


class CutDriver(StepwiseDriver):
    """Loses power before the effect after the next ``left`` ones."""

    left: int | None = None
    done = 0

    def _event_of(self, effect):
        if isinstance(effect, (Sync, WriteMetadata, Send)):
            if self.left is not None and self.done >= self.left:
                raise PowerCut
            self.done += 1
        return super()._event_of(effect)


def new_driver() -> CutDriver:
    driver = CutDriver(SETTINGS)
    admin = driver.connect()
    create_topic(admin, TOPIC, len(PARTITIONS))
    create_topic(admin, SOURCE, 1)
    return driver


def copier(client: Client) -> Steps:
    """Commits, aborts and commits, always with the offset it has come to."""
    yield from client.initialise()
    yield from client.transaction("a", PARTITIONS, True, 10)
    yield from client.transaction("b", (2, 0), False, 20)
    yield from client.transaction("c", (1, 2), True, 30)


def sleeper(client: Client) -> Steps:
    """Commits one and leaves the next open."""
    yield from client.initialise()
    yield from client.transaction("a", (0,), True, None)
    yield from client.transaction("b", (0, 1), None, None)


def clients_of(v2: bool) -> list[tuple[Client, Callable[[Client], Steps]]]:
    return [
        (Client("copier", v2), copier),
        (Client("sleeper", v2, timeout_ms=30_000, group="other"), sleeper),
    ]


def in_turn(driver: Driver, actors: list[tuple[Peer, Steps]]) -> None:
    """One request of each, in turn, until all are through."""
    answers: dict[int, object] = {}
    while actors:
        for actor in list(actors):
            peer, steps = actor
            try:
                answers[peer.id] = peer.ask(*steps.send(answers.get(peer.id)))
            except StopIteration:
                actors.remove(actor)


def run_until_cut(driver: CutDriver, left: int | None, v2: bool) -> list[Client]:
    """Run the clients until the power goes, or to their end."""
    driver.left, driver.done = left, 0
    made = clients_of(v2)
    with contextlib.suppress(PowerCut):
        in_turn(driver, [(driver.connect(), script(client)) for client, script in made])
    return [client for client, _ in made]


def shuffled(driver: CutDriver, actors: list[tuple[Peer, Steps]], chance: random.Random, moves: int) -> None:
    """Syncs and fact writes finish in any order, clients go on when they have their answer; ends after ``moves``."""
    driver.hold_syncs = driver.hold_metadata = True
    waiting = {peer.id: (peer, steps) for peer, steps in actors}
    for peer, steps in actors:
        peer.send(*next(steps))
    for _ in range(moves):
        ready = [peer for peer, _ in waiting.values() if peer.responses]
        choices = len(ready) + len(driver.held)
        if not choices:
            return
        chosen = chance.randrange(choices)
        if chosen < len(ready):
            peer, steps = waiting[ready[chosen].id]
            try:
                peer.send(*steps.send(peer.responses.popleft()))
            except StopIteration:
                del waiting[peer.id]
        else:
            driver.finish(driver.held.pop(chosen - len(ready)))
        if chance.random() < 0.05:
            driver.advance(chance.randrange(200))


def visible(driver: Driver) -> dict[int, list[bytes]]:
    return {partition: read(driver, partition)[0] for partition in PARTITIONS}


def expect_open_ones_open(driver: Driver, clients: list[Client]) -> None:
    """Transactions that nobody asked to end are open, and hold the last stable offset where they have written."""
    for client in clients:
        if not client.attempts or client.attempt.asked is not None or not client.attempt.acknowledged:
            continue
        assert state_of(driver, client.transactional_id) == "Ongoing"
        for partition, first_offset in client.attempt.acknowledged.items():
            assert read(driver, partition)[1] <= first_offset
            assert open_producers(driver, partition)[client.producer_id] == first_offset


def expect_all_ended(driver: Driver, clients: list[Client]) -> None:
    """Nothing is open or half done, and every transaction has one outcome, the one its client was told."""
    for partition in PARTITIONS:
        _, last_stable_offset, high_watermark = read(driver, partition)
        assert last_stable_offset == high_watermark
        assert open_producers(driver, partition) == {}
    for client in clients:
        state = state_of(driver, client.transactional_id)
        assert state in {"Empty", "CompleteCommit", "CompleteAbort", "TRANSACTIONAL_ID_NOT_FOUND", "NOT_COORDINATOR"}
        offset = -1
        seen = visible(driver)
        for attempt in client.attempts:
            if outcome_of(attempt, seen):
                offset = attempt.offset if attempt.offset is not None else offset
        if client.transactional_id == "copier":
            result = committed_offset(driver, require_stable=True)
            assert result == offset, "offsets and data disagree"
    for values in visible(driver).values():
        assert len(values) == len(set(values)), "a record twice"
        for client in clients:
            mine = [value for value in values if value.startswith(client.transactional_id.encode())]
            assert mine == sorted(mine), "out of order"


def outcome_of(attempt, seen: dict[int, list[bytes]]) -> bool:
    """True if a transaction is visible: all of it or nothing, and as its client was told."""
    shown = {all(value in seen[p] for value in values) for p, values in attempt.sent.items()}
    hidden = {not any(value in seen[p] for value in values) for p, values in attempt.sent.items()}
    committed = shown == {True}
    assert committed or hidden <= {True}, f"torn: {attempt}"
    if attempt.answered:
        assert committed == attempt.asked, attempt
    elif attempt.asked is not True:
        assert not committed, attempt
    return committed


def expect_new_instances_work(driver: Driver, clients: list[Client]) -> None:
    """A new instance fences the old one and gets a transaction through."""
    for client in clients:
        again = Client(client.transactional_id, client.v2, group=client.group)
        peer = driver.connect()
        assert run(peer, again.initialise()) == ErrorCode.NONE
        assert (again.producer_id, again.epoch) != (client.producer_id, client.epoch)
        run(peer, again.transaction("z", PARTITIONS, True, None))
        assert outcome_of(again.attempt, visible(driver))


def restart_and_check(driver: CutDriver, clients: list[Client], seed: int, cut_again: int | None) -> None:
    driver.left, driver.done = cut_again, 0
    try:
        driver.crash_and_restart(seed)
    except PowerCut:  # once more while it was starting
        driver.left = None
        driver.crash_and_restart(seed + 1)
    driver.left = None
    assert driver.fatal is None
    expect_open_ones_open(driver, clients)
    driver.advance(LONGER_THAN_ANY_TIMEOUT_MS)
    expect_all_ended(driver, clients)
    expect_new_instances_work(driver, clients)
    assert driver.fatal is None


def boundaries(v2: bool) -> int:
    driver = new_driver()
    run_until_cut(driver, None, v2)
    return driver.done


@pytest.mark.slow
@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("share", range(4))
def test_a_power_cut_at_every_effect_leaves_every_transaction_whole(v2: bool, share: int) -> None:
    for left in range(share, boundaries(v2) + 1, 4):
        driver = new_driver()
        clients = run_until_cut(driver, left, v2)
        restart_and_check(driver, clients, seed=left, cut_again=left % 9 if left % 2 else None)


@pytest.mark.slow
@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.long) for block in range(1, 4))])
def test_a_power_cut_with_the_disk_at_its_own_pace_leaves_every_transaction_whole(v2: bool, block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        chance = random.Random(seed)
        driver = new_driver()
        made = clients_of(v2)
        actors = [(driver.connect(), script(client)) for client, script in made]
        shuffled(driver, actors, chance, chance.randrange(200))
        driver.hold_syncs = driver.hold_metadata = False
        restart_and_check(driver, [client for client, _ in made], seed, chance.choice((None, 1, 3, 5, 8)))


def test_the_checks_notice_a_marker_that_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    send = MarkerSender._send

    def skips(self, sending):
        if sending.partition == (TOPIC, 2):
            self._done(sending)
        else:
            send(self, sending)

    monkeypatch.setattr(MarkerSender, "_send", skips)
    driver = new_driver()
    clients = run_until_cut(driver, None, v2=True)
    with pytest.raises(AssertionError):
        restart_and_check(driver, clients, seed=1, cut_again=None)


@pytest.mark.slow
def test_the_checks_notice_answers_before_the_disk_has_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    for left in range(boundaries(v2=True)):
        driver = new_driver()
        with monkeypatch.context() as planted:
            planted.setattr(GroupCommit, "when_durable", lambda self, log, offset, call, lost=None: call())
            clients = run_until_cut(driver, left, v2=True)
        try:
            restart_and_check(driver, clients, seed=left, cut_again=None)
        except AssertionError:
            return
    pytest.fail("no cut showed it")
