"""Compares the byte code of two modules whose variables may have other names: each load must see the same stores."""

from __future__ import annotations

import dis
from types import CodeType

LOCAL = {"LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR"}
NAMED = {"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF"}
"""Instructions on variables of closures; MAKE_CELL and LOAD_CLOSURE follow the alphabet, not the code."""
NO_SUCCESSOR = {
    "RETURN_VALUE",
    "RETURN_CONST",
    "RAISE_VARARGS",
    "RERAISE",
    "JUMP_FORWARD",
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
}


class Difference(Exception):
    """A place at which two trees differ in more than words."""


def compare_code(old: CodeType, new: CodeType, cells: dict[str, str] | None = None) -> None:
    """Raises Difference when two code objects differ in more than names. ``cells``: new names in closures."""
    cells = {} if cells is None else cells
    pairs = list(zip(before := _instructions(old), after := _instructions(new), strict=False))
    if len(before) != len(after) or any(was.opname != now.opname for was, now in pairs):
        raise Difference(f"{new.co_qualname}: other instructions")
    for was, now in pairs:
        if was.opname in NAMED and cells.setdefault(was.argval, now.argval) != now.argval:
            raise Difference(f"{new.co_qualname}: {was.argval} became {cells[was.argval]} and {now.argval}")
    if len(set(cells.values())) < len(cells):
        raise Difference(f"{new.co_qualname}: variables of closures became one: {cells}")
    if old.co_varnames != new.co_varnames:
        seen_before, seen_after = _stores_seen(old, before), _stores_seen(new, after)
        for position, (was, now) in enumerate(pairs):
            if was.opname in LOCAL and seen_before[position] != seen_after[position]:
                raise Difference(f"{new.co_qualname}: {was.argval} became {now.argval}, which holds another value")
    for was, now in pairs:
        if isinstance(was.argval, CodeType) and isinstance(now.argval, CodeType):
            compare_code(was.argval, now.argval, dict(cells))


def _instructions(code: CodeType) -> list[dis.Instruction]:
    return [
        instruction for instruction in dis.get_instructions(code) if instruction.opname not in ("EXTENDED_ARG", "CACHE")
    ]


def _stores_seen(code: CodeType, instructions: list[dis.Instruction]) -> list[frozenset[int]]:
    """For each instruction on a local variable: the stores whose value it may find. Parameters are -1, -2, …"""
    successors = _successors(code, instructions)
    parameters = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    stores = {name: frozenset([-1 - index]) for index, name in enumerate(code.co_varnames[:parameters])}
    states: list[dict[str, frozenset[int]]] = [{} for _ in instructions]
    states[0] = stores
    pending = set(range(len(instructions)))
    while pending:
        position = pending.pop()
        state = states[position]
        instruction = instructions[position]
        if instruction.opname in ("STORE_FAST", "DELETE_FAST"):
            state = state | {instruction.argval: frozenset([position])}
        for successor in successors[position]:
            merged = {
                name: states[successor].get(name, frozenset()) | state.get(name, frozenset())
                for name in states[successor].keys() | state.keys()
            }
            if merged != states[successor]:
                states[successor] = merged
                pending.add(successor)
    return [
        states[position].get(instruction.argval, frozenset())
        if instruction.opname.startswith(("LOAD_FAST", "DELETE_FAST"))
        else frozenset()
        for position, instruction in enumerate(instructions)
    ]


def _successors(code: CodeType, instructions: list[dis.Instruction]) -> list[set[int]]:
    """The instructions that may follow each one, its exception handler among them."""
    position_at: dict[int, int] = {}
    position = 0
    for instruction in dis.get_instructions(code, show_caches=True):
        # A jump to an instruction with a long argument lands at the prefix of it.
        position_at[instruction.offset] = position
        position += instruction.opname not in ("EXTENDED_ARG", "CACHE")
    successors: list[set[int]] = []
    for index, instruction in enumerate(instructions):
        after = set() if instruction.opname in NO_SUCCESSOR else {index + 1} & set(range(len(instructions)))
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            after.add(position_at[instruction.argval])
        successors.append(after)
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        for index in range(position_at[entry.start], position_at.get(entry.end, len(instructions))):
            successors[index].add(position_at[entry.target])
    return successors
