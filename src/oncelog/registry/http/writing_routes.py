"""Routes that register, look up and compare schemas, delete them, and change configs and modes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oncelog.registry import changes, errors
from oncelog.registry.http.call import Call
from oncelog.registry.http.documents import Document, registered_document, version_document
from oncelog.registry.http.permissions import Operation
from oncelog.registry.http.reading_routes import config_document
from oncelog.registry.metadata import InvalidMetadata, check_metadata
from oncelog.registry.registration import look_up, register, test_compatibility
from oncelog.registry.topic_records import Version


async def register_schema(call: Call) -> Document:
    subject = call.subject(Operation.WRITE)
    request, force = call.schema_request(subject), call.flag("force")
    if force:
        call.require(Operation.MANAGE, subject)
    version = await call.registry.change(lambda: register(call.store, request, force=force))
    return registered_document(await call.formatted(version), request.schema)


async def look_up_schema(call: Call) -> Document:
    subject = call.subject(Operation.READ)
    deleted = call.flag("deleted")
    version = await call.registry.read(
        look_up(call.store, call.schema_request(subject), call.may_read, deleted=deleted)
    )
    if version is not None:
        return version_document(await call.formatted(version))
    if not call.store.has_subjects(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.schema_not_found()


async def delete_subject(call: Call) -> list[int]:
    subject, permanent = call.subject(Operation.MANAGE), call.flag("permanent")
    return await call.registry.change(lambda: changes.delete_subject(call.store, subject, permanent=permanent))


async def delete_version(call: Call) -> int:
    subject, number, permanent = call.subject(Operation.MANAGE), call.version(), call.flag("permanent")
    return await call.registry.change(lambda: changes.delete_version(call.store, subject, number, permanent=permanent))


async def test_version(call: Call) -> Document:
    """Would the schema be compatible with one version?"""
    subject, number = call.subject(Operation.READ), call.version()
    version = call.store.version(subject, number)
    if version is None and number != -1:
        raise errors.version_not_found(number)
    return await _tested(call, subject, [] if version is None else [version])


async def test_subject(call: Call) -> Document:
    """Would the schema be registered under the subject?"""
    subject = call.subject(Operation.READ)
    return await _tested(call, subject, call.store.versions(subject))


async def _tested(call: Call, subject: str, earlier: list[Version]) -> Document:
    verbose = call.flag("verbose")
    request = replace(call.schema_request(subject), version=0)
    try:
        reasons = await call.registry.read(test_compatibility(call.store, request, earlier))
    except errors.RegistryError as error:
        if not verbose or error.code != errors.Code.INVALID_SCHEMA:
            raise
        reasons = [error.message]
    return {"is_compatible": not reasons} | ({"messages": reasons} if verbose else {})


async def put_config(call: Call) -> Document:
    scope, document = call.scope(Operation.MANAGE), dict(call.document())
    # Clients send the level as `compatibility`, and read it as `compatibilityLevel`.
    if "compatibility" in document:
        document["compatibilityLevel"] = document.pop("compatibility")
    _check_config(call, document)
    level = document.get("compatibilityLevel")
    if isinstance(level, str):
        document["compatibilityLevel"] = level.upper()
    config = await call.registry.change(lambda: changes.set_config(call.store, scope, document))
    answer = config_document(config)
    if "compatibilityLevel" in answer:
        answer["compatibility"] = answer.pop("compatibilityLevel")
    return answer


def _check_config(call: Call, document: Document) -> None:
    for name in ("defaultRuleSet", "overrideRuleSet"):
        call.check_rules(document.get(name))
    for name in ("alias", "compatibilityGroup"):
        if not isinstance(document.get(name), str | None):
            raise errors.RegistryError(422, f"{name} has to be text")
    for name in ("normalize", "validateFields", "validateRules"):
        if not isinstance(document.get(name), bool | None):
            raise errors.RegistryError(422, f"{name} has to be true or false")
    for name in ("defaultMetadata", "overrideMetadata"):
        metadata: Any = document.get(name)
        try:
            if not isinstance(metadata, dict | None):
                raise InvalidMetadata(f"{name} has to be an object")
            check_metadata(metadata)
        except InvalidMetadata as error:
            raise errors.RegistryError(422, str(error)) from None


async def delete_config(call: Call) -> Document:
    scope = call.scope(Operation.MANAGE)
    return config_document(await call.registry.change(lambda: changes.delete_config(call.store, scope)))


async def put_mode(call: Call) -> Document:
    scope, force = call.scope(Operation.MANAGE), call.flag("force")
    mode = call.document().get("mode")
    if not isinstance(mode, str | None):
        raise errors.invalid_mode()
    named = None if mode is None else mode.upper()
    await call.registry.change(lambda: changes.set_mode(call.store, scope, named, force=force))
    return {} if mode is None else {"mode": mode}


async def delete_mode(call: Call) -> Document:
    scope, recursive = call.scope(Operation.MANAGE), call.flag("recursive")
    mode = await call.registry.change(lambda: changes.delete_mode(call.store, scope, recursive=recursive))
    return {} if mode is None else {"mode": mode}


async def delete_context(call: Call) -> None:
    call.require(Operation.MANAGE, None)
    name = call.path["context"].strip(":")
    context = f":{name if name.startswith('.') else '.' + name}:"
    await call.registry.change(lambda: changes.delete_context(call.store, context))
