"""Consumers that balance through ZooKeeper, simulated: our machine with its carrier, and models of Java's consumers, on
one tree in virtual time.

``run`` plays a seed: consumers join, leave, die, freeze and are cut off, topics grow, watches come late, answers are
lost. It raises ``Violation`` where a rule does not hold. No threads, no brokers: a topic is a number of records.
"""

from __future__ import annotations

from tests.simulation.zookeeper_groups.world import Story, Violation, run

__all__ = ["Story", "Violation", "run"]
