"""``python -m codegen``: rewrite the generated modules; with ``--check`` only say which differ (exit code 1)."""

from __future__ import annotations

import sys
from pathlib import Path

from codegen.generate import TARGET, generate


def main() -> int:
    """Write or check."""
    check = "--check" in sys.argv[1:]
    differ = False
    for name, text in generate().items():
        path = Path(TARGET, name)
        if path.exists() and path.read_text() == text:
            continue
        differ = True
        print(f"{'differs' if check else 'written'}: {path}")
        if not check:
            path.write_text(text)
    return 1 if check and differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
