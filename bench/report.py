"""Paired repetitions and the table they make: the median of ratios, since the machine is never quiet."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.peers.supply import WORK

RESULTS: Final = WORK / "bench"
Figures = Mapping[str, float]


@dataclass
class Comparison:
    """Figures of two sides, one pair a repetition, and what the ratio should reach."""

    title: str
    ours: str
    theirs: str
    goals: Mapping[str, str] = field(default_factory=dict)
    pairs: list[tuple[Figures, Figures]] = field(default_factory=list)

    def add(self, ours: Figures, theirs: Figures) -> None:
        """Add the figures of a repetition."""
        self.pairs.append((ours, theirs))

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Figure, our median, their median, median of ratios (with its range), goal."""
        rows = []
        for name in self.pairs[0][0]:
            mine = [ours[name] for ours, _ in self.pairs]
            other = [theirs[name] for _, theirs in self.pairs if name in theirs]
            if not other:
                rows.append((name, _number(statistics.median(mine)), "–", "–", self.goals.get(name, "")))
                continue
            ratios = sorted(ours[name] / theirs[name] for ours, theirs in self.pairs if theirs.get(name))
            ratio = "–"
            if ratios:
                ratio = f"{statistics.median(ratios):.2f} ×"
                if len(ratios) > 1:
                    ratio += f" ({ratios[0]:.2f}–{ratios[-1]:.2f})"
            row = (name, _number(statistics.median(mine)), _number(statistics.median(other)), ratio)
            rows.append((*row, self.goals.get(name, "")))
        return rows

    def print(self) -> None:
        """A table that is Markdown too."""
        header = ("figure", self.ours, self.theirs, "ratio", "goal")
        table = [header, *self.rows()]
        widths = [max(len(row[column]) for row in table) for column in range(len(header))]
        print(f"\n### {self.title} ({len(self.pairs)} ×)\n")
        for number, row in enumerate(table):
            print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
            if number == 0:
                print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
        print(flush=True)

    def save(self, name: str, directory: Path = RESULTS) -> Path:
        """Write everything measured as JSON."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.json"
        content = {
            "title": self.title,
            "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "machine": {"system": platform.platform(), "python": platform.python_version()},
            "pairs": [{self.ours: dict(ours), self.theirs: dict(theirs)} for ours, theirs in self.pairs],
            "rows": self.rows(),
        }
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
        return path


def paired(
    comparison: Comparison, sides: Sequence[Callable[[int], Figures]], repetitions: int, progress: Callable[[str], None]
) -> Comparison:
    """Measure both sides in turn, the first to go changing each time."""
    ours, theirs = sides
    for number in range(repetitions):
        progress(f"{comparison.title}: {number + 1} of {repetitions}")
        if number % 2:
            other = theirs(number)
            comparison.add(ours(number), other)
        else:
            mine = ours(number)
            comparison.add(mine, theirs(number))
    return comparison


def narrowed(only: Sequence[str], *kinds: Mapping[str, Any]) -> list[list[Any]]:
    """Of each kind of thing, by its word, those that ``only`` names; all of a kind that it names none of.

    Raises SystemExit for a word that is of no kind.
    """
    known = {word for kind in kinds for word in kind}
    if unknown := set(only) - known:
        raise SystemExit(f"bench: --only takes {', '.join(sorted(known))}, not {', '.join(sorted(unknown))}")
    return [[kind[word] for word in kind if word in only] or list(kind.values()) for kind in kinds]


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
