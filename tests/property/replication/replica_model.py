"""A small world of replicas, every interleaving of it explored: the machines of the broker over logs of a few records.

The in-sync set, the high watermark and the joining of followers are ``core.replicas.leader``'s; where logs part and are
cut is ``core.replicas.follower``'s and ``storage.log.leader_epochs``'s; elections are ``core.controller.leadership``'s.
Abstract are the disks (a log and how much of it is synced), the tree (a journal of states, each broker anywhere behind
it), and the fetch, which is one step whose answer may be lost.

Checked, by the invariants of a cluster: R1 nothing that was acknowledged is missing from a leader of a later epoch · R2
(epoch, offset) names the same record everywhere · R3 one broker appends in an epoch · R4 who may be elected and runs
has all below any high watermark · R5 whoever is elected was in sync, or eligible, before · R6 all below any high
watermark is on the disk of every member of the committed in-sync set.

So that worlds which nothing can tell apart are one: a record is numbered among those of its epoch and offset that are
there, a registration among those of its broker that the journal names, the journal begins at the first state that a
running broker has not left behind, and a follower syncs when it asks for more (see ``synced``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, count, product
from typing import NamedTuple

from oncelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, Offset
from oncelog.core.controller.image.model import BrokerImage, PartitionImage
from oncelog.core.controller.replicas.leadership import ElectionRules, settled
from oncelog.core.controller.replicas.replica_sets import with_isr
from oncelog.core.replicas.follower import EpochEnd, diverges, truncation_offset
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.storage.log.leader_epochs import EpochStart, LeaderEpochs

Record = tuple[int, int, int]
"""Leader epoch, index of the broker that appended it, and a number that tells it from others there at its offset."""
Log = tuple[Record, ...]


class Bounds(NamedTuple):
    """The size of a world."""

    records: int = 2
    elections: int = 2
    crashes: int = 1
    power_cuts: int = 1
    changes: int = 2
    """Changes of the in-sync set by leaders."""
    lost_answers: int = 1
    min_isr: int = 1
    brokers: int = 3


class Leading(NamedTuple):
    """A leader's view of its replicas: what ``LeaderReplicas`` holds."""

    end: int
    followers: tuple[tuple[int, int, bool], ...]
    """Id, end and whether the high watermark waits for it."""
    in_sync: tuple[int, ...]
    proposed: tuple[int, ...] | None
    high_watermark: int
    epoch_start: int


class Broker(NamedTuple):
    """A broker's process and disk. A dead one keeps its registration's epoch for as long as the tree has it."""

    log: Log = ()
    synced: int = 0
    up: bool = True
    broker_epoch: int = 0
    image: int = 0
    """Number of states of the journal that it has seen, less one."""
    high_watermark: int = 0
    leading: Leading | None = None


class World(NamedTuple):
    """One state of everything."""

    brokers: tuple[Broker, ...]
    journal: tuple[PartitionImage, ...]
    registered: tuple[int, ...]
    """Epoch of each broker's registration in the tree; −1: none."""
    left: Bounds
    committed: Log = ()
    """Records below the highest high watermark ever: they were acknowledged, or read."""


class Violation(Exception):
    """An invariant does not hold."""


IDS = (BrokerId(1), BrokerId(2), BrokerId(3))
NOT_REGISTERED = -1
NO_IMAGE = 0
"""The image of who is dead."""


def begin(bounds: Bounds) -> World:
    """All replicas empty and in sync, the first one leads."""
    ids = IDS[: bounds.brokers]
    first = PartitionImage(ids[0], LeaderEpoch(0), ids, ids, leader_broker_epoch=0)
    world = World(tuple(Broker() for _ in ids), (first,), (0,) * len(ids), left=bounds)
    return _put(world, 0, _with_role(world, 0, world.brokers[0], None))


# Machines from values, and back


def _machine(world: World, index: int) -> LeaderReplicas:
    broker = world.brokers[index]
    state, leading = world.journal[broker.image], broker.leading
    assert leading is not None
    machine = LeaderReplicas(
        IDS[index],
        state.replicas,
        [BrokerId(member) for member in leading.in_sync],
        Offset(leading.high_watermark),
        epoch_start=Offset(leading.epoch_start),
        min_insync_replicas=world.left.min_isr,
    )
    machine.advance(IDS[index], Offset(leading.end))
    machine.high_watermark = Offset(leading.high_watermark)
    for replica, end, joining in leading.followers:
        follower = machine.follower(BrokerId(replica))
        assert follower is not None
        follower.end, follower.is_joining = Offset(end), joining
    if leading.proposed is not None:
        machine.propose([BrokerId(member) for member in leading.proposed])
    return machine


def _value(machine: LeaderReplicas, end: int, proposed: tuple[int, ...] | None) -> Leading:
    followers = []
    for replica in machine.assigned:
        follower = machine.follower(replica)
        if follower is not None:
            followers.append((int(replica), int(follower.end), follower.is_joining))
    return Leading(
        end,
        tuple(followers),
        tuple(map(int, machine.in_sync)),
        proposed if machine.has_proposed else None,
        int(machine.high_watermark),
        int(machine.epoch_start),
    )


def _put(world: World, index: int, broker: Broker) -> World:
    brokers = (*world.brokers[:index], broker, *world.brokers[index + 1 :])
    return world._replace(brokers=brokers)


def _trimmed(world: World) -> World:
    """The world without the states of the journal that every running broker has left behind."""
    first = min((broker.image for broker in world.brokers if broker.up), default=len(world.journal) - 1)
    if not first:
        return world
    brokers = tuple(broker._replace(image=broker.image - first if broker.up else NO_IMAGE) for broker in world.brokers)
    return world._replace(brokers=brokers, journal=world.journal[first:])


def _led(world: World, index: int, machine: LeaderReplicas, end: int, proposed: tuple[int, ...] | None) -> World:
    """The world after a leader's machine has moved on: what its high watermark passes is committed."""
    broker = world.brokers[index]
    leading = _value(machine, end, proposed)
    high_watermark = max(broker.high_watermark, leading.high_watermark)
    world = _put(world, index, broker._replace(leading=leading, high_watermark=high_watermark))
    shown = broker.log[:high_watermark]
    if shown != world.committed[:high_watermark]:
        if len(shown) <= len(world.committed) or shown[: len(world.committed)] != world.committed:
            raise Violation(f"R1 broker {index + 1} shows {shown}, {world.committed} was committed")
        world = world._replace(committed=shown)
    return world


def _epochs(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, (epoch, _, _) in enumerate(log):
        if epoch > epochs.latest:
            epochs.entries.append(EpochStart(epoch, offset))
    return epochs


def _images(world: World) -> dict[BrokerId, BrokerImage]:
    return {
        IDS[index]: BrokerImage(IDS[index], "h", 1, None, epoch)
        for index, epoch in enumerate(world.registered)
        if epoch >= 0
    }


# Roles


def _leads(state: PartitionImage, index: int, broker: Broker) -> bool:
    return state.leader == IDS[index] and state.leader_broker_epoch == broker.broker_epoch


def _with_role(world: World, index: int, broker: Broker, before: PartitionImage | None) -> Broker:
    """The broker after it has seen its image's state."""
    state = world.journal[broker.image]
    if not _leads(state, index, broker):
        return broker._replace(leading=None)
    if broker.leading is not None and before is not None and before.leader_epoch == state.leader_epoch:
        machine = _machine(_put(world, index, broker._replace(image=broker.image - 1)), index)
        machine.change_in_sync(state.replicas, state.isr)
        machine.withdraw()  # it was carried out, or is refused: there is one partition, and this is its next state
        return broker._replace(leading=_value(machine, broker.leading.end, None))
    if broker.log[: len(world.committed)] != world.committed:
        raise Violation(
            f"R1 broker {index + 1} leads epoch {state.leader_epoch} without {world.committed}: {broker.log}"
        )
    followers = tuple((int(replica), -1, False) for replica in state.replicas if replica != IDS[index])
    in_sync = tuple(map(int, state.isr))
    leading = Leading(broker.synced, followers, in_sync, None, broker.high_watermark, len(broker.log))
    return broker._replace(leading=leading)


# Steps


def steps(world: World) -> Iterator[tuple[str, World]]:
    """Everything that may happen next."""
    for index, broker in enumerate(world.brokers):
        if not broker.up:
            yield from _restart(world, index)
            continue
        yield from _see_next_state(world, index)
        if broker.leading is not None:
            yield from _sync(world, index)
            yield from _append(world, index)
            yield from _change_in_sync(world, index)
            for other in range(len(world.brokers)):
                if other != index:
                    yield from _fetch(world, other, index)
        yield from _crash(world, index)
    yield from _control(world)
    yield from _power_cut(world)


def _append(world: World, index: int) -> Iterator[tuple[str, World]]:
    broker, left = world.brokers[index], world.left
    if not left.records or not _machine(world, index).has_enough_in_sync():
        return
    epoch, offset = world.journal[broker.image].leader_epoch, len(broker.log)
    for other in world.brokers:
        for written in other.log:
            if written[0] == epoch and written[1] != index:
                raise Violation(f"R3 broker {index + 1} appends in epoch {epoch}, which has {written}")
    logs = (world.committed, *(other.log for other in world.brokers))
    there = {log[offset] for log in logs if len(log) > offset}
    record = next(record for number in count() if (record := (epoch, index, number)) not in there)
    world = world._replace(left=left._replace(records=left.records - 1))
    yield f"append {index + 1}", _put(world, index, broker._replace(log=(*broker.log, record)))


def _sync(world: World, index: int) -> Iterator[tuple[str, World]]:
    """A leader syncs. A follower does when it asks for more."""
    broker = world.brokers[index]
    end = len(broker.log)
    assert broker.leading is not None
    if broker.leading.end == end:
        return
    world = _put(world, index, broker._replace(synced=end))
    machine = _machine(world, index)
    machine.advance(IDS[index], Offset(end))
    yield f"sync {index + 1}", _led(world, index, machine, end, broker.leading.proposed)


def synced(follower: Broker) -> Broker:
    """A follower that has synced all it has, as it does before it asks for more. Nobody could tell if it did so
    earlier: a power cut may keep what was not synced, too."""
    return follower._replace(synced=len(follower.log))


def _fetch(world: World, index: int, leader: int) -> Iterator[tuple[str, World]]:
    """A follower fetches: only when its log is synced, and only in the leader's epoch."""
    if not world.brokers[index].up or world.brokers[index].leading is not None:
        return
    follower, led = synced(world.brokers[index]), world.brokers[leader]
    state = world.journal[follower.image]
    leader_state = world.journal[led.image]
    if state.leader_epoch != leader_state.leader_epoch:
        return
    assert led.leading is not None
    offset = len(follower.log)
    own = _epochs(follower.log)
    if own.latest >= 0:
        end = EpochEnd(*_epochs(led.log).end_offset(own.latest, len(led.log), leader_state.leader_epoch))
        if diverges(end, offset, own.latest):
            own_end = EpochEnd(*own.end_offset(end.epoch, offset, own.latest))
            cut = int(truncation_offset(end, own_end, offset))
            kept = follower._replace(
                log=follower.log[:cut],
                synced=min(follower.synced, cut),
                high_watermark=min(follower.high_watermark, cut),
            )
            yield f"truncate {index + 1} to {cut}", _put(world, index, kept)
            return
    elif offset > len(led.log):
        return
    after = _noted(world, index, leader, offset)
    new = after.brokers[leader]
    assert new.leading is not None
    got = follower._replace(
        log=(*follower.log, *led.log[offset : offset + 1]),
        high_watermark=max(follower.high_watermark, min(new.leading.high_watermark, offset + 1, len(led.log))),
    )
    if after != world or got != follower:
        yield f"fetch {index + 1} from {leader + 1}", _put(after, index, got)
    if after != world and world.left.lost_answers:
        left = world.left._replace(lost_answers=world.left.lost_answers - 1)
        lost = _put(after, index, follower)._replace(left=left)
        yield f"fetch {index + 1} from {leader + 1}, answer lost", lost


def _noted(world: World, index: int, leader: int, offset: int) -> World:
    led = world.brokers[leader]
    assert led.leading is not None
    machine = _machine(world, leader)
    follower = machine.follower(IDS[index])
    assert follower is not None
    follower.end = Offset(offset)
    eligible = IDS[index] not in machine.in_sync and world.registered[index] == world.brokers[index].broker_epoch
    follower.is_joining = eligible and offset == len(led.log)
    machine.settle()
    return _led(world, leader, machine, led.leading.end, led.leading.proposed)


def _change_in_sync(world: World, index: int) -> Iterator[tuple[str, World]]:
    """A leader proposes, lets go of one that it waited for, or its proposal reaches the tree."""
    broker = world.brokers[index]
    leading = broker.leading
    assert leading is not None
    if leading.proposed is None and world.left.changes:
        machine = _machine(world, index)
        left = world.left._replace(changes=world.left.changes - 1)
        for replica, _, joining in leading.followers:
            if replica in leading.in_sync:
                members = tuple(member for member in leading.in_sync if member != replica)
            elif joining and machine.may_join(BrokerId(replica)):
                members = (*leading.in_sync, replica)
            else:
                continue
            proposed = leading._replace(proposed=members)
            after = _put(world, index, broker._replace(leading=proposed))
            yield f"propose {members}", after._replace(left=left)
    for replica, _, joining in leading.followers:
        if joining:
            machine = _machine(world, index)
            follower = machine.follower(BrokerId(replica))
            assert follower is not None
            follower.is_joining = False
            machine.settle()
            yield f"let go of {replica}", _led(world, index, machine, leading.end, leading.proposed)
    if leading.proposed is not None:
        yield from _commit(world, index, leading.proposed)


def _commit(world: World, index: int, members: tuple[int, ...]) -> Iterator[tuple[str, World]]:
    """The tree takes a proposal if the state is the one that it was made on, and its brokers are registered as then;
    the leader learns of it with its image. A refusal is told when the image has what was in the way."""
    broker = world.brokers[index]
    state = world.journal[broker.image]
    added = [member for member in members if BrokerId(member) not in state.isr]
    registered = world.registered[index] == broker.broker_epoch and all(
        world.registered[member - 1] == world.brokers[member - 1].broker_epoch for member in added
    )
    if broker.image == len(world.journal) - 1 and registered:
        ordered = [replica for replica in state.replicas if replica in members]
        after = with_isr(state, ordered, world.left.min_isr)
        if after != state:
            yield f"commit {members}", world._replace(journal=(*world.journal, after))
            return
    if broker.image == len(world.journal) - 1:
        assert broker.leading is not None
        machine = _machine(world, index)
        machine.withdraw()
        machine.settle()
        yield f"refuse {members}", _led(world, index, machine, broker.leading.end, None)


def _see_next_state(world: World, index: int) -> Iterator[tuple[str, World]]:
    broker = world.brokers[index]
    if broker.image + 1 < len(world.journal):
        before = world.journal[broker.image]
        seen = _with_role(world, index, broker._replace(image=broker.image + 1), before)
        world = _put(world, index, seen)
        if seen.leading is not None:
            machine = _machine(world, index)
            machine.settle()
            world = _led(world, index, machine, seen.leading.end, seen.leading.proposed)
        yield f"image {index + 1}", _trimmed(world)


def _crash(world: World, index: int) -> Iterator[tuple[str, World]]:
    if world.left.crashes:
        left = world.left._replace(crashes=world.left.crashes - 1)
        yield f"kill {index + 1}", _trimmed(_dead(world, index, len(world.brokers[index].log)))._replace(left=left)


def _power_cut(world: World) -> Iterator[tuple[str, World]]:
    """All at once; each disk keeps what was synced, and perhaps the rest."""
    if not world.left.power_cuts:
        return
    left = world.left._replace(power_cuts=world.left.power_cuts - 1)
    ends = [sorted({broker.synced, len(broker.log)}) for broker in world.brokers]
    for kept in product(*ends):
        after = world._replace(left=left)
        for index, end in enumerate(kept):
            after = _dead(after, index, end)
        yield f"power cut, kept {kept}", _trimmed(after)


def _dead(world: World, index: int, end: int) -> World:
    broker = world.brokers[index]
    epoch = broker.broker_epoch if world.registered[index] == broker.broker_epoch else NOT_REGISTERED
    return _put(world, index, Broker(broker.log[:end], min(broker.synced, end), False, epoch, NO_IMAGE))


def _restart(world: World, index: int) -> Iterator[tuple[str, World]]:
    """Under a new registration, with the image of that moment; the old one ends if the tree has it still."""
    named = {state.leader_broker_epoch for state in world.journal if state.leader == IDS[index]}
    broker_epoch = next(epoch for epoch in count() if epoch not in named)
    registered = (*world.registered[:index], broker_epoch, *world.registered[index + 1 :])
    broker = world.brokers[index]._replace(up=True, broker_epoch=broker_epoch, image=len(world.journal) - 1)
    world = world._replace(registered=registered)
    yield f"restart {index + 1}", _trimmed(_put(world, index, _with_role(world, index, broker, None)))


def _control(world: World) -> Iterator[tuple[str, World]]:
    """Registrations of dead brokers end; the controller settles the partition."""
    for index, broker in enumerate(world.brokers):
        if not broker.up and world.registered[index] >= 0:
            registered = (*world.registered[:index], NOT_REGISTERED, *world.registered[index + 1 :])
            forgotten = _put(world, index, broker._replace(broker_epoch=NOT_REGISTERED))
            yield f"session of {index + 1} ends", forgotten._replace(registered=registered)
    state = world.journal[-1]
    after = settled(state, _images(world), ElectionRules(world.left.min_isr))
    if after == state:
        return
    if after.leader != NO_BROKER and after.leader not in (*state.isr, *state.elr):
        raise Violation(f"R5 broker {after.leader} is elected, in sync were {state.isr}, eligible {state.elr}")
    elections = int(after.leader_epoch != state.leader_epoch)
    if elections <= world.left.elections:
        left = world.left._replace(elections=world.left.elections - elections)
        settled_world = world._replace(journal=(*world.journal, after), left=left)
        yield f"settle {after.leader} {after.isr}", _trimmed(settled_world)


# Invariants


def check(world: World) -> None:
    """R2, R4 and R6; R1, R3 and R5 are checked where they could break."""
    logs = {broker.log for broker in world.brokers}
    for one, other in combinations(logs, 2):
        for offset, (mine, theirs) in enumerate(zip(one, other, strict=False)):
            if mine[0] == theirs[0] and one[: offset + 1] != other[: offset + 1]:
                raise Violation(f"R2 {one} and {other} part before offset {offset}")
    state, told = world.journal[-1], len(world.committed)
    for member in (*state.isr, *state.elr):
        broker = world.brokers[member - 1]
        if member in state.isr and broker.log[: broker.synced][:told] != world.committed:
            raise Violation(f"R6 broker {member} is in sync and lacks some of {world.committed}: {broker}")
        if broker.up and broker.log[:told] != world.committed:
            raise Violation(f"R4 broker {member} may be elected and lacks some of {world.committed}: {broker}")


class Path(NamedTuple):
    """The steps that lead to a world, the last one first."""

    step: str
    before: Path | None

    def __str__(self) -> str:
        return f"{self.before}, {self.step}" if self.before else self.step


def explore(bounds: Bounds) -> int:
    """Explore every world that can be reached; their number. Raises Violation with the steps that lead there.

    Worlds that have been seen are remembered by their hashes of 64 bits.
    """
    first = begin(bounds)
    seen = {hash(first)}
    frontier: list[tuple[World, Path | None]] = [(first, None)]
    while frontier:
        following: list[tuple[World, Path | None]] = []
        for world, path in frontier:
            name = "?"
            try:
                for name, after in steps(world):
                    if (digest := hash(after)) not in seen:
                        seen.add(digest)
                        check(after)
                        following.append((after, Path(name, path)))
            except Violation as violation:
                raise Violation(f"{violation}\n  after {path}, then after {name}") from None
        frontier = following
    return len(seen)


def walk(bounds: Bounds, entropy: random.Random, length: int = 60) -> None:
    """One random path through a world. Raises Violation with the steps that lead there."""
    world, names = begin(bounds), []
    try:
        for _ in range(length):
            following = list(steps(world))
            if not following:
                break
            name, world = entropy.choice(following)
            names.append(name)
            check(world)
    except Violation as violation:
        raise Violation(f"{violation}\n  after {', '.join(names)}") from None
