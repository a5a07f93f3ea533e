"""``oncelog sim``: broker, clients and workload in one thread under virtual time, with faults drawn from a seed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncelog.base.notation.shell_words import option
from oncelog.cli.support.output import print_json_line, progress
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.sim.faults.fault import Fault
    from oncelog.sim.seeds.simulation import SeedResult

EPILOG: Final = """\b
Examples:
  oncelog sim --seed 6                    one seed
  oncelog sim --seeds 100 --json          a hundred fresh ones, a line of JSON each
  oncelog sim --seed 6 --trace | less     what happens in it, line by line
  oncelog sim --seed 6 --minimise         the shortest plan of faults that still fails
  oncelog sim --seeds 50 --cluster        several brokers, 2 to 5 of them
  oncelog sim --seeds 500 --length 20     many short ones
  oncelog sim --seeds 50 --cluster --fault killed-ahead --fault joiner-frozen

Exits with 1 when a rule was violated. See docs/internals/simulation.md."""

_SHOWN_LINES: Final = 25
LENGTH_S: Final = 100
DUMP_FORMAT: Final = 1
"""Seconds of faults, as ``oncelog.sim.seeds.simulation`` has it, which is not imported for the help."""


@dataclass(frozen=True)
class _Worlds:
    """The worlds of a run, one for each seed."""

    brokers: int | None
    """None: as many as the seeds draw."""
    faults: list[Fault] | None
    """None: those that the seeds draw, of these kinds."""
    kinds: tuple[str, ...] = ()
    length_s: int = LENGTH_S
    """Seconds of faults."""

    def simulate(
        self, seed: int, faults: Sequence[Fault] | None = None, log: Callable[[str], None] | None = None
    ) -> SeedResult:
        """Runs one seed, with ``faults`` instead of the drawn ones if given."""
        from oncelog.sim.seeds.simulation import simulate

        plan = self.faults if faults is None else faults
        return simulate(seed, plan=plan, safety_s=self.length_s, log=log, brokers=self.brokers, kinds=self.kinds)


def sim(
    seed: Annotated[int | None, typer.Option(metavar="N", help="Run this seed.")] = None,
    brokers: Annotated[
        int, typer.Option(metavar="N", min=1, max=9, help="Brokers of the world; 1 unless --cluster says otherwise.")
    ] = 1,
    cluster: Annotated[bool, typer.Option("--cluster", help="Let the seed draw a number of brokers, 2 to 5.")] = False,
    seeds: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Run this many fresh seeds; stop at the first failure.")
    ] = None,
    length: Annotated[
        int, typer.Option(metavar="S", min=1, max=86_400, help="Seconds of faults, in virtual time.")
    ] = LENGTH_S,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Faults to use instead of those the seed draws, one a line.")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Draw faults of this kind only; more than once: of these."),
    ] = None,
    minimise: Annotated[bool, typer.Option("--minimise", help="Shorten the plan of a failing seed.")] = False,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run a failure that --dump wrote, or a flight recording.")
    ] = None,
    dump: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write what --replay needs of a failure.")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print everything that happens; with --json on stderr.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a seed.")] = False,
) -> None:
    """Run the broker, its clients and their workload in virtual time, with faults drawn by seed.

    The same seed gives the same run, byte for byte. Nothing is written to disk and no port is opened.
    """
    count = None if cluster else brokers
    faults = None if plan is None else _read_plan(plan)
    worlds = _Worlds(count, faults, _kinds(fault, count, plan), length)
    command = "oncelog sim --seed {seed}" + _options(worlds, plan)
    if replay is not None:
        if seed is not None or seeds is not None or plan is not None:
            raise typer.BadParameter(
                "the file to replay has the seed and the plan; leave out --seed, --seeds and --plan",
                param_hint="--replay",
            )
        if _is_recording(replay):
            _replay_recording(replay, trace=trace, as_json=as_json)
            return
        seed, dumped = _read_dump(replay)
        worlds = replace(dumped, kinds=worlds.kinds)
        command = f"oncelog sim {option('--replay', replay)}"
    with _quiet_end():
        failed = _run(worlds, _seeds(seed, seeds), trace=trace, as_json=as_json, command=command)
    if failed is not None:
        _keep(worlds, failed, minimised=minimise, dump=dump)
        raise typer.Exit(1)


def _keep(worlds: _Worlds, failed: SeedResult, *, minimised: bool, dump: Path | None) -> None:
    """Shortens and saves the plan of a failure, as requested."""
    if minimised:
        worlds = replace(worlds, faults=_minimise(worlds, failed))
    if dump is not None:
        _write_dump(dump, worlds, failed)


def _options(worlds: _Worlds, plan: Path | None) -> str:
    """The command-line options that select these worlds."""
    count = worlds.brokers
    brokers = " --cluster" if count is None else "" if count == 1 else f" --brokers {count}"
    planned = "" if plan is None else f" {option('--plan', plan)}"
    length = "" if worlds.length_s == LENGTH_S else f" --length {worlds.length_s}"
    return brokers + planned + "".join(f" --fault {kind}" for kind in worlds.kinds) + length


def _kinds(fault: list[str] | None, count: int | None, plan: Path | None) -> tuple[str, ...]:
    """The kinds of faults to draw; empty: as the seeds draw them. Raises BadParameter."""
    from oncelog.sim.faults.plan import ALL_KINDS, ALONE

    if not fault:
        return ()
    if plan is not None:
        raise typer.BadParameter(
            "--plan has the faults already; give --plan or --fault, not both", param_hint="--fault"
        )
    for kind in fault:
        if kind not in ALL_KINDS:
            raise typer.BadParameter(f"{kind!r} is not a fault; the faults are {', '.join(sorted(ALL_KINDS))}")
        if count == 1 and kind not in ALONE:
            raise typer.BadParameter(f"{kind} needs several brokers (--cluster, --brokers N)", param_hint="--fault")
    return tuple(fault)


def _run(worlds: _Worlds, runs: list[int], *, trace: bool, as_json: bool, command: str) -> SeedResult | None:
    """Runs seeds until one fails, and returns that run. ``command`` repeats it."""
    begun, virtual_s, requests = time.monotonic(), 0.0, 0
    log = partial(print_line, err=as_json) if trace else None
    with progress("simulating" if len(runs) > 1 and not as_json else None) as told:
        for number, seed in enumerate(runs):
            outcome = worlds.simulate(seed, log=log)
            virtual_s += outcome.virtual_s
            requests += outcome.requests
            told(number + 1, len(runs))
            if as_json:
                print_json_line(_as_json(outcome))
            if outcome.violations:
                _report_failure(outcome, command.replace("{seed}", str(seed)))
                return outcome
    if not as_json:
        seconds = time.monotonic() - begun
        print_line(
            f"{len(runs)} seed{'s' * (len(runs) > 1)}: no violation; {virtual_s:.0f} virtual seconds and "
            f"{requests} requests in {seconds:.1f} s"
        )
    return None


def _as_json(outcome: SeedResult) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        "violations": outcome.violations,
        "events": outcome.events,
        "requests": outcome.requests,
        "virtual_s": round(outcome.virtual_s, 3),
        "trace_sha256": outcome.trace_sha256,
        "workloads": outcome.workloads,
        "faults": [str(fault) for fault in outcome.plan],
    }


def _report_failure(outcome: SeedResult, command: str) -> None:
    for line in outcome.last_lines[-_SHOWN_LINES:]:
        print_line(f"  {line[:200]}", err=True)
    for violation in outcome.violations:
        print_line(f"violated: {violation}", err=True)
    print_line(f"seed {outcome.seed}, {_commit()}; again: {command}", err=True)


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Silences the programs of an interrupted simulation, which still run for a moment."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        sys.unraisablehook = lambda _: None
        warnings.simplefilter("ignore", RuntimeWarning)
        raise


def _minimise(worlds: _Worlds, failed: SeedResult) -> list[Fault]:
    from oncelog.sim.seeds.delta_debugging import minimise

    def fails(plan: Sequence[Fault]) -> bool:
        return bool(worlds.simulate(failed.seed, plan).violations)

    shortest = minimise(failed.plan, fails)
    enough = f"{len(shortest)} of {len(failed.plan)} faults are enough (at ms, kind, span ms, choice):"
    print_line(enough, err=True)
    for fault in shortest:
        print_line(fault)
    return shortest


def _seeds(seed: int | None, count: int | None) -> list[int]:
    """The named seed, or ``count`` fresh ones. Raises BadParameter."""
    import secrets

    if (seed is None) == (count is None):
        raise typer.BadParameter("give --seed N or --seeds K")
    return [seed] if seed is not None else [secrets.randbelow(1 << 48) for _ in range(count or 0)]


def _read_plan(path: Path) -> list[Fault]:
    from oncelog.sim.faults.plan import parse_plan

    try:
        return parse_plan(path.read_text())
    except ValueError as error:
        shown = str(error) if str(error).startswith("no fault") else "a line is: at ms, kind, span ms, choice"
        raise typer.BadParameter(f"{path} is not a plan of faults ({shown})") from None


def _write_dump(path: Path, worlds: _Worlds, failed: SeedResult) -> None:
    from oncelog.sim.faults.plan import format_plan

    content = {
        "oncelog": "simulation",
        "format": DUMP_FORMAT,
        "seed": failed.seed,
        "brokers": worlds.brokers,
        "length_s": worlds.length_s,
        "commit": _commit(),
        "plan": format_plan(failed.plan if worlds.faults is None else worlds.faults),
        "violations": failed.violations,
        "trace_sha256": failed.trace_sha256,
        "last_lines": failed.last_lines,
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


def _read_dump(path: Path) -> tuple[int, _Worlds]:
    from oncelog.sim.faults.plan import parse_plan

    try:
        content = json.loads(path.read_text())
        if (version := content.get("format", DUMP_FORMAT)) != DUMP_FORMAT:
            raise typer.BadParameter(
                f"{path} has format {version}, and this version of oncelog reads {DUMP_FORMAT}: replay it with the "
                "version that wrote it"
            )
        brokers, length_s = content.get("brokers", 1), int(content.get("length_s", LENGTH_S))
        worlds = _Worlds(brokers, parse_plan(content["plan"]), length_s=length_s)
        return int(content["seed"]), worlds
    except (ValueError, KeyError, TypeError):
        raise typer.BadParameter(f"{path} is neither what --dump writes nor a flight recording") from None


def _is_recording(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"what":"begin"' in file.readline(1 << 16)


def _replay_recording(path: Path, *, trace: bool, as_json: bool) -> None:
    """Replays a broker's flight recording; exits with 1 if it fails or differs."""
    from oncelog.node.observation.flight_recorder import RecordingUnreadable, read_recording
    from oncelog.sim.seeds.flight_replay import replay

    try:
        with path.open("rb") as file:
            recording = read_recording(file)
    except RecordingUnreadable as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    replayed = replay(recording, print_line if trace else None)
    if as_json:
        print_json_line(replayed)
    else:
        print_line(
            f"{replayed.events} of {len(recording.moments)} events; the recording ends: {replayed.end or 'unfinished'}"
        )
        if replayed.differs_at is not None:
            print_line(
                f"event {replayed.differs_at} had other effects than were recorded (another version of oncelog?)"
            )
        if replayed.failure is not None:
            print_line(f"the broker stopped: {replayed.failure}")
    if replayed.differs_at is not None or replayed.failure is not None:
        raise typer.Exit(1)


def _commit() -> str:
    """The version, and the commit when running from a checkout."""
    from oncelog import __version__

    here = Path(__file__)

    def git(*arguments: str) -> str:
        try:
            command = ["git", "-C", str(here.parent), *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""

    # An environment inside a user's own repository is not a checkout of ours.
    commit = git("rev-parse", "--short=12", "HEAD") if git("ls-files", here.name) else ""
    return f"oncelog {__version__}" + (f" at {commit}" if commit else "")
