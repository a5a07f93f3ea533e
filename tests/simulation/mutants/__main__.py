"""``oncelog sim`` with a mutant: ``python -m tests.simulation.mutants NAME --seed 6``; without a name, the list."""

from __future__ import annotations

import sys

from oncelog.cli.main import invoke
from tests.simulation.mutants import MUTANTS


def main(arguments: list[str]) -> int:
    """Run the command with the mutant that the first argument names; the exit code."""
    if not arguments:
        print("\n".join(f"{name}: {mutant.what}" for name, mutant in MUTANTS.items()))
        return 0
    name, *options = arguments
    if name not in MUTANTS:
        print(f"no mutant is called {name!r}; without arguments this prints all names", file=sys.stderr)
        return 2
    with MUTANTS[name].planted():
        return invoke(["sim", *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
