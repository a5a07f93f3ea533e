"""Everything that may happen next in a small world of replicas, each step with the world after it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

from oncelog.base.ids import NO_BROKER, BrokerId, Offset
from oncelog.core.controller.replicas.leadership import ElectionRules, settled
from oncelog.core.controller.replicas.replica_sets import with_isr
from oncelog.core.replicas.follower import EpochEnd, diverges, truncation_offset
from tests.property.replication.world import (
    IDS,
    NO_IMAGE,
    NOT_REGISTERED,
    Broker,
    Violation,
    World,
    epochs_of,
    images_of,
    led_by,
    machine_of,
    put,
    trimmed,
    with_role,
)


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
    if not left.records or not machine_of(world, index).has_enough_in_sync():
        return
    epoch, offset = world.journal[broker.image].leader_epoch, len(broker.log)
    for other in world.brokers:
        for written in other.log:
            if written[0] == epoch and written[1] != index:
                raise Violation(f"R3 broker {index + 1} appends in epoch {epoch}, which has {written}")
    logs = (world.committed, *(other.log for other in world.brokers))
    present = {log[offset] for log in logs if len(log) > offset}
    record = next(record for number in count() if (record := (epoch, index, number)) not in present)
    world = world._replace(left=left._replace(records=left.records - 1))
    yield f"append {index + 1}", put(world, index, broker._replace(log=(*broker.log, record)))


def _sync(world: World, index: int) -> Iterator[tuple[str, World]]:
    """A leader syncs. A follower does when it asks for more."""
    broker = world.brokers[index]
    end = len(broker.log)
    assert broker.leading is not None
    if broker.leading.end == end:
        return
    world = put(world, index, broker._replace(synced=end))
    machine = machine_of(world, index)
    machine.advance(IDS[index], Offset(end))
    yield f"sync {index + 1}", led_by(world, index, machine, end, broker.leading.proposed)


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
    own = epochs_of(follower.log)
    if own.latest >= 0:
        end = EpochEnd(*epochs_of(led.log).end_offset(own.latest, len(led.log), leader_state.leader_epoch))
        if diverges(end, offset, own.latest):
            own_end = EpochEnd(*own.end_offset(end.epoch, offset, own.latest))
            cut = int(truncation_offset(end, own_end, offset))
            kept = follower._replace(
                log=follower.log[:cut],
                synced=min(follower.synced, cut),
                high_watermark=min(follower.high_watermark, cut),
            )
            yield f"truncate {index + 1} to {cut}", put(world, index, kept)
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
        yield f"fetch {index + 1} from {leader + 1}", put(after, index, got)
    if after != world and world.left.lost_answers:
        left = world.left._replace(lost_answers=world.left.lost_answers - 1)
        lost = put(after, index, follower)._replace(left=left)
        yield f"fetch {index + 1} from {leader + 1}, answer lost", lost


def _noted(world: World, index: int, leader: int, offset: int) -> World:
    led = world.brokers[leader]
    assert led.leading is not None
    machine = machine_of(world, leader)
    follower = machine.follower(IDS[index])
    assert follower is not None
    follower.end = Offset(offset)
    eligible = IDS[index] not in machine.in_sync and world.registered[index] == world.brokers[index].broker_epoch
    follower.is_joining = eligible and offset == len(led.log)
    machine.settle()
    return led_by(world, leader, machine, led.leading.end, led.leading.proposed)


def _change_in_sync(world: World, index: int) -> Iterator[tuple[str, World]]:
    """A leader proposes, lets go of one that it waited for, or its proposal reaches the tree."""
    broker = world.brokers[index]
    leading = broker.leading
    assert leading is not None
    if leading.proposed is None and world.left.changes:
        machine = machine_of(world, index)
        left = world.left._replace(changes=world.left.changes - 1)
        for replica, _, joining in leading.followers:
            if replica in leading.in_sync:
                members = tuple(member for member in leading.in_sync if member != replica)
            elif joining and machine.may_join(BrokerId(replica)):
                members = (*leading.in_sync, replica)
            else:
                continue
            proposed = leading._replace(proposed=members)
            after = put(world, index, broker._replace(leading=proposed))
            yield f"propose {members}", after._replace(left=left)
    for replica, _, joining in leading.followers:
        if joining:
            machine = machine_of(world, index)
            follower = machine.follower(BrokerId(replica))
            assert follower is not None
            follower.is_joining = False
            machine.settle()
            yield f"let go of {replica}", led_by(world, index, machine, leading.end, leading.proposed)
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
        machine = machine_of(world, index)
        machine.withdraw()
        machine.settle()
        yield f"refuse {members}", led_by(world, index, machine, broker.leading.end, None)


def _see_next_state(world: World, index: int) -> Iterator[tuple[str, World]]:
    broker = world.brokers[index]
    if broker.image + 1 < len(world.journal):
        before = world.journal[broker.image]
        seen = with_role(world, index, broker._replace(image=broker.image + 1), before)
        world = put(world, index, seen)
        if seen.leading is not None:
            machine = machine_of(world, index)
            machine.settle()
            world = led_by(world, index, machine, seen.leading.end, seen.leading.proposed)
        yield f"image {index + 1}", trimmed(world)


def _crash(world: World, index: int) -> Iterator[tuple[str, World]]:
    if world.left.crashes:
        left = world.left._replace(crashes=world.left.crashes - 1)
        yield f"kill {index + 1}", trimmed(_dead(world, index, len(world.brokers[index].log)))._replace(left=left)


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
        yield f"power cut, kept {kept}", trimmed(after)


def _dead(world: World, index: int, end: int) -> World:
    broker = world.brokers[index]
    epoch = broker.broker_epoch if world.registered[index] == broker.broker_epoch else NOT_REGISTERED
    return put(world, index, Broker(broker.log[:end], min(broker.synced, end), False, epoch, NO_IMAGE))


def _restart(world: World, index: int) -> Iterator[tuple[str, World]]:
    """Under a new registration, with the image of that moment; the old one ends if the tree has it still."""
    named = {state.leader_broker_epoch for state in world.journal if state.leader == IDS[index]}
    broker_epoch = next(epoch for epoch in count() if epoch not in named)
    registered = (*world.registered[:index], broker_epoch, *world.registered[index + 1 :])
    broker = world.brokers[index]._replace(up=True, broker_epoch=broker_epoch, image=len(world.journal) - 1)
    world = world._replace(registered=registered)
    yield f"restart {index + 1}", trimmed(put(world, index, with_role(world, index, broker, None)))


def _control(world: World) -> Iterator[tuple[str, World]]:
    """Registrations of dead brokers end; the controller settles the partition."""
    for index, broker in enumerate(world.brokers):
        if not broker.up and world.registered[index] >= 0:
            registered = (*world.registered[:index], NOT_REGISTERED, *world.registered[index + 1 :])
            forgotten = put(world, index, broker._replace(broker_epoch=NOT_REGISTERED))
            yield f"session of {index + 1} ends", forgotten._replace(registered=registered)
    state = world.journal[-1]
    after = settled(state, images_of(world), ElectionRules(world.left.min_isr))
    if after == state:
        return
    if after.leader != NO_BROKER and after.leader not in (*state.isr, *state.elr):
        raise Violation(f"R5 broker {after.leader} is elected, in sync were {state.isr}, eligible {state.elr}")
    elections = int(after.leader_epoch != state.leader_epoch)
    if elections <= world.left.elections:
        left = world.left._replace(elections=world.left.elections - elections)
        settled_world = world._replace(journal=(*world.journal, after), left=left)
        yield f"settle {after.leader} {after.isr}", trimmed(settled_world)
