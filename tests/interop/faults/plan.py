"""The kinds of faults, by name, and the plan that a seed draws from them. Each comes, stays, and is healed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.interop.faults.host import Host

Strike = Callable[[Host, random.Random, float], None]
"""Does it for about so many seconds, and heals what it did."""


def kill(host: Host, chance: random.Random, seconds: float) -> None:
    """SIGKILL, at once up again or after a while."""
    host.kill(chance.choice([0.0, seconds]))


def stop(host: Host, chance: random.Random, seconds: float) -> None:
    """A clean restart."""
    host.stop(chance.choice([0.0, seconds]))


def pause(host: Host, chance: random.Random, seconds: float) -> None:
    """SIGSTOP and SIGCONT: time-outs pass without it."""
    host.pause(seconds * chance.choice([0.5, 2.0]))


def reset(host: Host, chance: random.Random, seconds: float) -> None:
    """Connections are reset, some times."""
    for _ in range(chance.randint(1, 5)):
        host.proxy.reset_all()
        time.sleep(seconds / 5)


def refuse(host: Host, chance: random.Random, seconds: float) -> None:
    """Nobody gets in: a network that is down."""
    host.proxy.change(connects=False)
    host.proxy.reset_all()
    time.sleep(seconds)
    host.proxy.change()


def slow(host: Host, chance: random.Random, seconds: float) -> None:
    """Every piece takes its time."""
    host.proxy.change(delay_s=chance.choice([0.02, 0.1, 0.4]))
    time.sleep(seconds)
    host.proxy.change()


def throttle(host: Host, chance: random.Random, seconds: float) -> None:
    """A line of a modem."""
    host.proxy.change(bytes_per_s=chance.choice([2e3, 2e4]))
    time.sleep(seconds)
    host.proxy.change()


def _one_way(host: Host, chance: random.Random, seconds: float, **conditions: bool) -> None:
    host.proxy.change(**conditions)
    time.sleep(seconds)
    if chance.random() < 0.5:
        host.proxy.reset_all()
    host.proxy.change()


def deaf(host: Host, chance: random.Random, seconds: float) -> None:
    """Requests get stuck on the way, then come late or never."""
    _one_way(host, chance, seconds, requests_pass=False)


def mute(host: Host, chance: random.Random, seconds: float) -> None:
    """Answers get stuck on the way, then come late or never."""
    _one_way(host, chance, seconds, answers_pass=False)


def half_open(host: Host, chance: random.Random, seconds: float) -> None:
    """Connections that look alive and pass nothing on; new ones are refused."""
    _one_way(host, chance, seconds, requests_pass=False, answers_pass=False, connects=False)


def full_disk(host: Host, chance: random.Random, seconds: float) -> None:
    """No room for a while; perhaps a kill in the middle of it."""
    host.fill_disk()
    time.sleep(seconds)
    if chance.random() < 0.3:
        host.broker.process.kill()
    host.free_disk()


def clock_ahead(host: Host, chance: random.Random, seconds: float) -> None:
    """The clock jumps ahead: transactions time out all at once."""
    host.move_clock(chance.choice([2.0, 30.0, 3600.0]))
    time.sleep(seconds)


def clock_back(host: Host, chance: random.Random, seconds: float) -> None:
    """The clock jumps back."""
    host.move_clock(-chance.choice([2.0, 30.0, 3600.0]))
    time.sleep(seconds)


FAULTS: Final[Mapping[str, Strike]] = {
    "kill": kill,
    "stop": stop,
    "pause": pause,
    "reset": reset,
    "refuse": refuse,
    "slow": slow,
    "throttle": throttle,
    "deaf": deaf,
    "mute": mute,
    "half-open": half_open,
    "full-disk": full_disk,
    "clock-ahead": clock_ahead,
    "clock-back": clock_back,
}


@dataclass(frozen=True)
class Plan:
    """A seed's choice: which faults, how long each, how long it is quiet in between."""

    seed: int
    names: Sequence[str] = tuple(FAULTS)
    longest_s: float = 3.0
    quiet_s: tuple[float, float] = (0.2, 1.5)
    swarm: bool = True
    """Leave out about half of the names, chosen by the seed: rare meetings happen when the common ones do not."""

    def steps(self) -> Iterator[tuple[str, float, float, random.Random]]:
        """Without end: name, how long, how quiet afterwards, and the chance for what the fault itself draws."""
        chance = random.Random(self.seed)
        names = list(self.names)
        if self.swarm and len(names) > 2:
            names = sorted(chance.sample(names, max(2, len(names) // 2)))
        while True:
            name = chance.choice(names)
            yield (
                name,
                chance.uniform(0.1, self.longest_s),
                chance.uniform(*self.quiet_s),
                random.Random(chance.random()),
            )
