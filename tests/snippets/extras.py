"""``pip install`` of an example: the names are checked against this project, nothing is installed."""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata


def main() -> int:
    """Returns 1 for an extra that this project does not have."""
    extras = metadata("oncelog").get_all("Provides-Extra") or []
    words = [word for word in sys.argv[1:] if word.startswith("oncelog")]
    named = [name for word in words for name in re.sub(r"^oncelog\[?|\]", "", word).split(",") if name]
    unknown = sorted(set(named) - set(extras))
    print(
        *(f"oncelog has no extra {name!r}; it has {', '.join(extras)}" for name in unknown), sep="\n", file=sys.stderr
    )
    return bool(unknown)


if __name__ == "__main__":
    sys.exit(main())
