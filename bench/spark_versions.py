"""Our Spark source on each PySpark, beside a source that does nothing there: is one version slower than another?

Each version has two Spark processes of its own, from the environments of `tests.spark.versions`: one reads topics of
one broker, the other reads nothing (`bench.spark_ceiling`). They take turns, one reading at a time, so that what else a
machine does meets all of them alike. The figures of a version stand beside those of the locked one in the same round,
and so do their quotients by those of its own do-nothing source, which tell our part from Spark's.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.spark.versions.environments import environment, known_versions, release

from bench.options import Options, progress
from bench.peers import Broker, delete_topics, running
from bench.report import Comparison
from bench.spark_source import NOOP, NOTHING, OURS, Case, Side, chosen, fill_topic

REFERENCE: Final = "4.2"
"""The version that is locked for development, whose figures are in `docs/benchmarks.md`."""
_WARM_UP: Final = 3
_RATE: Final = "rows/s"
_CPU: Final = "CPU µs/row"

Sides = Mapping[str, tuple[Side, Side]]


def spark_versions(options: Options) -> Comparison:
    """The Spark source on PySpark 4.0 to 4.3, each beside a source there that does nothing, to noop (--only)."""
    cases, sinks = chosen(options.only or ["100b", "none", "1p", NOOP])
    if sinks != [NOOP]:
        raise SystemExit("bench: spark-versions reads to noop: --only …,noop")
    comparison = Comparison("PySpark by version", "oncelog", "doing nothing", _goals(cases))
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name,
        running(options.ours.broker(Path(name))) as broker,
        _sides(options) as sides,
    ):
        rounds: list[tuple[dict[str, float], dict[str, float]]] = [({}, {}) for _ in range(options.repeat)]
        for case in cases:
            topic = fill_topic(broker, case, options.scale)
            for number in range(-_WARM_UP, options.repeat):
                mine, other = _round(sides, broker, case, topic)
                progress(
                    f"{comparison.title}: {case.label}: {max(0, number + 1)} of {options.repeat}{_said(mine, other)}"
                )
                if number >= 0:
                    rounds[number][0].update(mine)
                    rounds[number][1].update(other)
            delete_topics(broker, [topic[0]])
    for mine, other in rounds:
        comparison.add(mine, other)
    return comparison


@contextlib.contextmanager
def _sides(options: Options) -> Iterator[Sides]:
    """Of each version: ours and the one that reads nothing, ready."""
    with contextlib.ExitStack() as opened:
        sides = {}
        for version in known_versions():
            python = environment(version, progress)
            ours, nothing = (Side(item, options.spark_settings, python) for item in (OURS, NOTHING))
            sides[version] = (opened.enter_context(ours), opened.enter_context(nothing))
        yield sides


def _round(
    sides: Sides, broker: Broker, case: Case, topic: tuple[str, int]
) -> tuple[dict[str, float], dict[str, float]]:
    """Every version once: figures of ours, and of doing nothing."""
    name, count = topic
    mine: dict[str, float] = {}
    other: dict[str, float] = {}
    for version, both in sides.items():
        for figures, side in zip((mine, other), both, strict=True):
            reading = side.read(broker, case, name, count, None)
            figures[_name(case, version, _RATE)] = count / reading.elapsed_s
            figures[_name(case, version, _CPU)] = reading.cpu_s / count * 1e6
    for version in sides:
        for what in (_RATE, _CPU):
            name, reference = _name(case, version, what), _name(case, REFERENCE, what)
            mine[_beside(name)], other[_beside(name)] = mine[name], mine[reference]
            mine[_of_nothing(name)] = mine[name] / other[name]
            other[_of_nothing(name)] = mine[reference] / other[reference]
    return mine, other


def _said(mine: Mapping[str, float], other: Mapping[str, float]) -> str:
    """The figures of a round: ours, and of doing nothing."""
    return "".join(f"; {name} {value:.3g}, {other[name]:.3g}" for name, value in mine.items() if "beside" not in name)


def _name(case: Case, version: str, text: str) -> str:
    return f"{case.label}, {release(version)}: {text}"


def _beside(name: str) -> str:
    """Of a figure of ours, whose peer is the version that is the reference."""
    return f"{name}, beside {release(REFERENCE)}"


def _of_nothing(name: str) -> str:
    """Of a figure's quotient by that of doing nothing, whose peer is the same of the version that is the reference."""
    return _beside(f"{name}, of doing nothing")


def _goals(cases: list[Case]) -> dict[str, str]:
    """The goal for each version beside the reference."""
    goals = {_RATE: "≥ 0.95 ×", _CPU: "≤ 1.05 ×"}
    versions = known_versions()
    return {
        _beside(_name(case, version, goal)): goals[goal] for case in cases for version in versions for goal in goals
    }
