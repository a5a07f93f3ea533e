"""Prints, as JSON, which modules of an installation cannot be imported, with the package that each lacks. Runs in the
environment under test, by its path, and so imports nothing of the tests.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import oncelog


def lacking() -> dict[str, str]:
    """The package that each module lacks. Raises any other error of an import."""
    missing: dict[str, str] = {}
    for module in pkgutil.walk_packages(oncelog.__path__, "oncelog.", onerror=lambda _name: None):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing[module.name] = (error.name or "").partition(".")[0]
    return missing


if __name__ == "__main__":
    json.dump(lacking(), sys.stdout)
