"""Two contract types for import-linter, so that `.importlinter` reads like the table of rooms in the architecture.

`rooms`: direct imports between the packages below one package, an allow-list per row. Rooms that do not exist yet are
passed over; a room without a row is an error. `pure`: the rooms named never reach a forbidden module, by any chain.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


class RoomsContract(Contract):
    """An allow-list of direct imports: `row: room, room.part`."""

    type_name = "rooms"

    package = fields.StringField()
    rooms = fields.ListField(subfield=fields.StringField())
    open_to_all = fields.StringField(required=False, default="")
    top = fields.StringField(required=False, default="")

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import that its row does not name."""
        package = str(self.package)
        if package not in graph.modules:
            return ContractCheck(kept=True, metadata={"refused": [], "strangers": []})
        rows = dict(self._row(str(line)) for line in self.rooms)  # type: ignore[attr-defined]  # fields are descriptors
        strangers = [
            room
            for room in sorted(graph.find_children(package))
            if room.rpartition(".")[2] not in rows and graph.find_descendants(room)
        ]
        refused: list[tuple[str, str]] = []
        for room, allowed in rows.items():
            if room == self.top or f"{package}.{room}" not in graph.modules:
                continue
            open_rooms = [f"{package}.{name}" for name in (room, *allowed, *str(self.open_to_all).split()) if name]
            for importer in sorted({f"{package}.{room}", *graph.find_descendants(f"{package}.{room}")}):
                refused.extend(
                    (importer, imported)
                    for imported in sorted(graph.find_modules_directly_imported_by(importer))
                    if imported.startswith(package + ".") and not any(_is_within(imported, name) for name in open_rooms)
                )
        return ContractCheck(kept=not refused and not strangers, metadata={"refused": refused, "strangers": strangers})

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
