"""A small world of replicas as values: brokers, their logs, and the journal of the tree.

The in-sync set, the high watermark and the joining of followers are ``core.replicas.leader``'s; where logs part and are
cut is ``core.replicas.follower``'s and ``storage.log.leader_epochs``'s; elections are ``core.controller.leadership``'s.
Abstract are the disks (a log and how much of it is synced), the tree (a journal of states, each broker anywhere behind
it), and the fetch, which is one step whose answer may be lost.

So that worlds which nothing can tell apart are one: a record is numbered among those of its epoch and offset that are
there, a registration among those of its broker that the journal names, the journal begins at the first state that a
running broker has not left behind, and a follower syncs when it asks for more (see ``synced``).
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.ids import BrokerId, LeaderEpoch, Offset
from oncelog.core.controller.image.model import BrokerImage, PartitionImage
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.storage.leader_epochs import EpochStart, LeaderEpochs

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
    return put(world, 0, with_role(world, 0, world.brokers[0], None))


def machine_of(world: World, index: int) -> LeaderReplicas:
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


def leading_of(machine: LeaderReplicas, end: int, proposed: tuple[int, ...] | None) -> Leading:
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


def put(world: World, index: int, broker: Broker) -> World:
    brokers = (*world.brokers[:index], broker, *world.brokers[index + 1 :])
    return world._replace(brokers=brokers)


def trimmed(world: World) -> World:
    """The world without the states of the journal that every running broker has left behind."""
    first = min((broker.image for broker in world.brokers if broker.up), default=len(world.journal) - 1)
    if not first:
        return world
    brokers = tuple(broker._replace(image=broker.image - first if broker.up else NO_IMAGE) for broker in world.brokers)
    return world._replace(brokers=brokers, journal=world.journal[first:])


def led_by(world: World, index: int, machine: LeaderReplicas, end: int, proposed: tuple[int, ...] | None) -> World:
    """The world after a leader's machine has moved on: what its high watermark passes is committed."""
    broker = world.brokers[index]
    leading = leading_of(machine, end, proposed)
    high_watermark = max(broker.high_watermark, leading.high_watermark)
    world = put(world, index, broker._replace(leading=leading, high_watermark=high_watermark))
    shown = broker.log[:high_watermark]
    if shown != world.committed[:high_watermark]:
        if len(shown) <= len(world.committed) or shown[: len(world.committed)] != world.committed:
            raise Violation(f"R1 broker {index + 1} shows {shown}, {world.committed} was committed")
        world = world._replace(committed=shown)
    return world


def epochs_of(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, (epoch, _, _) in enumerate(log):
        if epoch > epochs.latest:
            epochs.entries.append(EpochStart(epoch, offset))
    return epochs


def images_of(world: World) -> dict[BrokerId, BrokerImage]:
    return {
        IDS[index]: BrokerImage(IDS[index], "h", 1, None, epoch)
        for index, epoch in enumerate(world.registered)
        if epoch >= 0
    }


def leads(state: PartitionImage, index: int, broker: Broker) -> bool:
    return state.leader == IDS[index] and state.leader_broker_epoch == broker.broker_epoch


def with_role(world: World, index: int, broker: Broker, before: PartitionImage | None) -> Broker:
    """The broker after it has seen its image's state."""
    state = world.journal[broker.image]
    if not leads(state, index, broker):
        return broker._replace(leading=None)
    if broker.leading is not None and before is not None and before.leader_epoch == state.leader_epoch:
        machine = machine_of(put(world, index, broker._replace(image=broker.image - 1)), index)
        machine.change_in_sync(state.replicas, state.isr)
        machine.withdraw()  # it was carried out, or is refused: there is one partition, and this is its next state
        return broker._replace(leading=leading_of(machine, broker.leading.end, None))
    if broker.log[: len(world.committed)] != world.committed:
        raise Violation(
            f"R1 broker {index + 1} leads epoch {state.leader_epoch} without {world.committed}: {broker.log}"
        )
    followers = tuple((int(replica), -1, False) for replica in state.replicas if replica != IDS[index])
    in_sync = tuple(map(int, state.isr))
    leading = Leading(broker.synced, followers, in_sync, None, broker.high_watermark, len(broker.log))
    return broker._replace(leading=leading)
