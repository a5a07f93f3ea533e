"""Two contract types for import-linter, so that `.importlinter` reads like the table of rooms in the architecture.

`rooms`: direct imports between the packages below one package, an allow-list per row. Rooms that do not exist yet are
passed over; a room without a row is an error. A dotted row takes a part out of its room: the part has the imports of
its own row, and rows that import it name it. `pure`: the rooms named never reach a forbidden module, by any chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def row_of(name: str, rows: Iterable[str]) -> str | None:
    """The row that a module or package belongs to, the longest of those it is within."""
    return max((row for row in rows if _is_within(name, row)), key=len, default=None)


class RoomsContract(Contract):
    """An allow-list of direct imports: `row: room, room.part`; and `doors`, packages that are imported by name only."""

    type_name = "rooms"

    package = fields.StringField()
    rooms = fields.ListField(subfield=fields.StringField())
    open_to_all = fields.StringField(required=False, default="")
    top = fields.StringField(required=False, default="")
    doors = fields.StringField(required=False, default="")

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import that its row does not name."""
        package = str(self.package)
        if package not in graph.modules:
            return ContractCheck(kept=True, metadata={"refused": [], "strangers": []})
        rows = dict(self._row(str(line)) for line in self.rooms)  # type: ignore[attr-defined]  # fields are descriptors
        strangers = list(self._without_row(graph, package, rows))
        refused = [
            (importer, imported)
            for importer in sorted(graph.find_descendants(package))
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.startswith(package + ".")
            and not self._may_import(importer[len(package) + 1 :], imported[len(package) + 1 :], rows)
        ]
        return ContractCheck(kept=not refused and not strangers, metadata={"refused": refused, "strangers": strangers})

    def _may_import(self, importer: str, imported: str, rows: Mapping[str, list[str]]) -> bool:
        """True if the row of a module allows an import; both names are relative to the package."""
        row, target = row_of(importer, rows), row_of(imported, rows)
        if row is None or row == target:
            return True
        if target in str(self.doors).split() and imported != target:
            return False
        allowed = (*rows[row], *str(self.open_to_all).split())
        is_named = (_is_within(imported, name) and row_of(name, rows) == target for name in allowed)
        return row == self.top or any(is_named)

    @staticmethod
    def _without_row(graph: ImportGraph, room: str, rows: Mapping[str, list[str]], prefix: str = "") -> Iterator[str]:
        """The packages that no row names, neither themselves nor, all of them, their parts."""
        for child in sorted(graph.find_children(room)):
            name = prefix + child.rpartition(".")[2]
            if name in rows or not graph.find_descendants(child):
                continue
            if any(row.startswith(name + ".") for row in rows):
                yield from RoomsContract._without_row(graph, child, rows, name + ".")
            else:
                yield child

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line a refused import."""
        for importer, imported in check.metadata["refused"]:
            output.print_error(f"{importer} may not import {imported}")
        for room in check.metadata["strangers"]:
            output.print_error(f"{room} has no row in .importlinter")

    @staticmethod
    def _row(line: str) -> tuple[str, list[str]]:
        room, _, allowed = line.partition(":")
        return room.strip(), [name.strip() for name in allowed.split(",") if name.strip()]


class PureContract(Contract):
    """Rooms from which no chain of imports leads to a forbidden module."""

    type_name = "pure"

    package = fields.StringField()
    rooms = fields.ListField(subfield=fields.StringField())
    forbidden = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look for the shortest chain from each room to each forbidden module."""
        chains: list[tuple[str, ...]] = []
        for name in self.rooms:  # type: ignore[attr-defined]  # fields are descriptors
            room = f"{self.package}.{name}"
            if room not in graph.modules:
                continue
            for forbidden in self.forbidden:  # type: ignore[attr-defined]  # fields are descriptors
                if forbidden in graph.modules:
                    chains.extend(
                        sorted(graph.find_shortest_chains(importer=room, imported=forbidden, as_packages=True))
                    )
        return ContractCheck(kept=not chains, metadata={"chains": chains})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line a chain."""
        for chain in check.metadata["chains"]:
            output.print_error(" -> ".join(chain))
