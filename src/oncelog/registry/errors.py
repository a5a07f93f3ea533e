"""Refusals of a registry, with the codes and texts of Confluent's: clients match on the codes."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The codes of error documents; the first three digits are the HTTP status."""

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    CONFIG_NOT_FOUND = 40408
    MODE_NOT_FOUND = 40409
    INCOMPATIBLE = 40901
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY = 42203
    INVALID_MODE = 42204
    NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    INVALID_SUBJECT = 42208
    TOO_LARGE = 42209
    INVALID_RULE_SET = 42210
    CONTEXT_NOT_EMPTY = 42211
    STORE_FAILED = 50001
    TIMED_OUT = 50002


class RegistryError(Exception):
    """A refused request. ``code`` is one of ``Code``, or an HTTP status without further digits."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message

    @property
    def status(self) -> int:
        return int(str(self.code)[:3])


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(Code.VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(key: object = None) -> RegistryError:
    return RegistryError(Code.SCHEMA_NOT_FOUND, "Schema not found" if key is None else f"Schema {key} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        Code.SUBJECT_SOFT_DELETED, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        Code.SUBJECT_NOT_SOFT_DELETED,
        f"Subject '{subject}' was not deleted first before being permanently deleted",
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        Code.VERSION_SOFT_DELETED,
        f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        Code.VERSION_NOT_SOFT_DELETED,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted",
    )


def config_not_found(subject: str) -> RegistryError:
    return RegistryError(
        Code.CONFIG_NOT_FOUND, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def mode_not_found(subject: str) -> RegistryError:
    return RegistryError(Code.MODE_NOT_FOUND, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    return RegistryError(
        Code.INCOMPATIBLE,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        f"[{', '.join(reasons)}]",
    )


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(Code.INVALID_SCHEMA, reason)


def empty_schema() -> RegistryError:
    return invalid_schema("Empty schema")


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        Code.INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_compatibility() -> RegistryError:
    return RegistryError(
        Code.INVALID_COMPATIBILITY,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(
        Code.INVALID_MODE, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT."
    )


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(Code.NOT_PERMITTED, reason)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(
        Code.REFERENCE_EXISTS,
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(Code.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")


def too_large(reason: str) -> RegistryError:
    return RegistryError(Code.TOO_LARGE, reason)
