"""The kinds of faults, by name, and the schedule that a seed draws from them. Each comes, stays, and is healed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.cluster.brokers import SESSION_MS, Cluster
from tests.peers.zookeeper import ZooKeeper


@dataclass(frozen=True)
class Scenario:
    """The things that a fault may strike."""

    cluster: Cluster
    zookeeper: ZooKeeper | None
    topic: str
    partitions: int

    def pick(self, chance: random.Random) -> int:
        """A broker: one that leads, the controller, or any."""
        status = self.cluster.status()
        expected, any_of_them = chance.random(), chance.choice(self.cluster.ids)
        partition = chance.randrange(self.partitions)
        if expected < 0.6:
            leader = self.cluster.leader(self.topic, partition)
            return leader if leader in self.cluster.ids else any_of_them
        if expected < 0.8 and status is not None and status.controller_id in self.cluster.ids:
            return int(status.controller_id)  # type: ignore[arg-type]  # None is no id
        return any_of_them


Strike = Callable[[Scenario, random.Random, float], None]
"""Does it for about so many seconds, and heals what it did."""


def kill(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """SIGKILL; up again at once or after a while."""
    broker_id = scenario.pick(chance)
    scenario.cluster.kill([broker_id])
    time.sleep(chance.choice([0.0, seconds]))
    scenario.cluster.start()


def kill_two(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """SIGKILL to two of them, one after the other."""
    doomed = chance.sample(scenario.cluster.ids, 2)
    scenario.cluster.kill(doomed[:1])
    time.sleep(chance.choice([0.0, 0.3 * seconds]))
    scenario.cluster.kill(doomed[1:])
    time.sleep(chance.choice([0.0, seconds]))
    for broker_id in chance.sample(doomed, 2):
        scenario.cluster.start([broker_id])


def kill_all(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """SIGKILL to all at once; up again together."""
    scenario.cluster.kill()
    time.sleep(chance.choice([0.0, 0.3 * seconds]))
    scenario.cluster.start()


def freeze(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """SIGSTOP, for less than a session or for more, and SIGCONT."""
    broker_id = scenario.pick(chance)
    scenario.cluster.freeze(broker_id)
    time.sleep(chance.choice([0.3, 1.5]) * SESSION_MS / 1000 + chance.choice([0.0, seconds]))
    scenario.cluster.thaw(broker_id)


def wipe(scenario: Scenario, chance: random.Random, _seconds: float) -> None:
    """The disk of a broker is lost: it comes back empty and copies."""
    scenario.cluster.wait_healthy()  # two disks lost would be records lost
    broker_id = scenario.pick(chance)
    scenario.cluster.kill([broker_id])
    scenario.cluster.wipe(broker_id)
    scenario.cluster.start()
    scenario.cluster.wait_healthy()


def stop(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """SIGTERM; up again at once or after a while."""
    _stop(scenario, scenario.pick(chance))
    time.sleep(chance.choice([0.0, seconds]))
    scenario.cluster.start()


def roll(scenario: Scenario, _chance: random.Random, _seconds: float) -> None:
    """SIGTERM to each in turn, the next when the cluster is healthy."""
    for broker_id in scenario.cluster.ids:
        scenario.cluster.wait_healthy()
        _stop(scenario, broker_id)
        scenario.cluster.start()


def _stop(scenario: Scenario, broker_id: int) -> None:
    code = scenario.cluster.stop(broker_id)
    if code:
        raise RuntimeError(f"exit code {code} after SIGTERM:\n{scenario.cluster.log(broker_id)[-2000:]}")


def _cut(scenario: Scenario, chance: random.Random, seconds: float, **conditions: bool) -> None:
    proxy = scenario.cluster.proxies[scenario.pick(chance)]
    proxy.change(**conditions)
    time.sleep(seconds)
    if chance.random() < 0.5:
        proxy.reset_all()
    proxy.change()


def deaf(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """Bytes to a broker get stuck, then come late or never."""
    _cut(scenario, chance, seconds, requests_pass=False)


def mute(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """The answers of a broker get stuck, then come late or never."""
    _cut(scenario, chance, seconds, answers_pass=False)


def cut(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """Nothing comes to a broker at its address; what it asks of others passes."""
    _cut(scenario, chance, seconds, requests_pass=False, answers_pass=False, connects=False)


def reset(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """All connections to a broker are reset, some times."""
    proxy = scenario.cluster.proxies[scenario.pick(chance)]
    for _ in range(chance.randint(1, 4)):
        proxy.reset_all()
        time.sleep(seconds / 4)


def zookeeper(scenario: Scenario, chance: random.Random, seconds: float) -> None:
    """ZooKeeper is killed and started again; perhaps a broker dies meanwhile."""
    assert scenario.zookeeper is not None
    scenario.zookeeper.kill()
    if chance.random() < 0.5:
        scenario.cluster.kill([scenario.pick(chance)])
    time.sleep(seconds)
    scenario.zookeeper.start()
    scenario.cluster.start()


FAULTS: Final[Mapping[str, Strike]] = {
    "kill": kill,
    "kill-two": kill_two,
    "kill-all": kill_all,
    "freeze": freeze,
    "wipe": wipe,
    "stop": stop,
    "roll": roll,
    "deaf": deaf,
    "mute": mute,
    "cut": cut,
    "reset": reset,
    "zookeeper": zookeeper,
}
PROXIED: Final = frozenset({"deaf", "mute", "cut", "reset"})
"""Faults that need proxies in front of the brokers."""


class Step(NamedTuple):
    """One fault of a schedule."""

    name: str
    seconds: float
    quiet_s: float
    """Until the next."""
    goes_on: bool
    """True: the next waits until all producers have gone on."""
    chance: random.Random
    """For what the fault itself draws."""


@dataclass(frozen=True)
class Schedule:
    """A seed's choice: which faults, how long each, how long it is quiet in between."""

    seed: int
    names: Sequence[str]
    longest_s: float = 4.0
    quiet_s: tuple[float, float] = (0.2, 2.0)

    def steps(self) -> Iterator[Step]:
        """Without end."""
        chance = random.Random(self.seed)
        while True:
            name = chance.choice(self.names)
            yield Step(
                name,
                chance.uniform(0.1, self.longest_s),
                chance.uniform(*self.quiet_s),
                chance.random() < 0.6,
                random.Random(chance.random()),
            )
