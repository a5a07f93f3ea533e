"""Subjects with their contexts: `:.context:subject`, or `subject` in the default context."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""The context whose config and mode hold for all contexts."""
ALL_CONTEXTS: Final = ":*:"
MAX_SUBJECT_LENGTH: Final = 1024
OWN_CONTEXT: Final = ".__oncelog"
"""The context of records that clients do not have."""
_PREFIX: Final = ":."
_RESERVED: Final = ("__GLOBAL", "__EMPTY")


class Subject(NamedTuple):
    """A subject's context, which begins with a dot, and its name within it; an empty name stands for the context."""

    context: str
    name: str

    @property
    def qualified(self) -> str:
        return f"{context_prefix(self.context)}{self.name}"

    @property
    def is_default_context(self) -> bool:
        return self.context == DEFAULT_CONTEXT and not self.name


def context_prefix(context: str) -> str:
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def parse_subject(text: str) -> Subject:
    if text.startswith(ALL_CONTEXTS):
        return Subject("*", text[len(ALL_CONTEXTS) :])
    if not text.startswith(_PREFIX):
        return Subject(DEFAULT_CONTEXT, text)
    context, _, name = text[1:].partition(":")
    return Subject(context, name)


def qualified(text: str) -> str:
    """The form that names a subject in the topic: the default context is left out."""
    return parse_subject(text).qualified


def context_of(text: str) -> str:
    return parse_subject(text).context


def within(parent: str, text: str) -> str:
    """The subject that a reference of ``parent`` names: in its own context, else in the parent's."""
    subject = parse_subject(text)
    if subject.context != DEFAULT_CONTEXT or text.startswith(_PREFIX):
        return subject.qualified
    return Subject(context_of(parent), subject.name).qualified


def is_valid(text: str, *, names_schemas: bool) -> bool:
    """True for a subject that may be written. ``names_schemas`` is False for configs and modes, which contexts have,
    too."""
    if len(text) > MAX_SUBJECT_LENGTH or any(ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0 for letter in text):
        return False
    subject = parse_subject(text)
    if subject.name in _RESERVED or subject.context in ("*", OWN_CONTEXT):
        return False
    return not (names_schemas and (not subject.name or subject.context == GLOBAL_CONTEXT))


def matches(pattern: str, subject: str) -> bool:
    """True for the subject itself, and for every subject of a context without a name (the global one has them all)."""
    if pattern == subject:
        return True
    scope = parse_subject(pattern)
    return not scope.name and scope.context in (GLOBAL_CONTEXT, context_of(subject))


def has_prefix(subject: str, prefix: str) -> bool:
    """True if the subject begins with ``prefix``, which may begin with `:*:` for any context."""
    if prefix.startswith(ALL_CONTEXTS):
        return parse_subject(subject).name.startswith(prefix[len(ALL_CONTEXTS) :])
    return subject.startswith(prefix)
