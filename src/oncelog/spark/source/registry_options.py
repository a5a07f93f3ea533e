"""The source's options of registries: `valueSchema.…` and `keySchema.…`."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.schemas.wire_format import KEY, VALUE
from oncelog.spark.registry_values.decoding import RegistryDecoding
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.options import OPTIONS, SourceOptions, names_registry

_OWN = ("registry", "registry.url", "subject", "version", "message")


def resolved_options(options: SourceOptions, given: Mapping[str, str]) -> tuple[str, ...]:
    """How tasks decode, by the schemas that the registry has now. Raises OptionError."""
    lowered = {name.lower(): str(value) for name, value in given.items()}
    parts = [part for part in (KEY, VALUE) if names_registry({name: "" for name in lowered if name.startswith(part)})]
    if options.value_as_text and VALUE in parts:
        raise OptionError("value.format=utf8 leaves nothing to decode for valueSchema.registry: omit one of them")
    bad = lowered.get("badrecords", str(OPTIONS["badRecords"])).lower()
    if bad not in ("keep", "fail"):
        raise OptionError(f"badRecords must be 'keep' or 'fail', got {bad!r}")
    decodings = [_resolved(options, lowered, part, fails=bad == "fail") for part in parts]
    return tuple(decoding.option() for decoding in decodings)


def _resolved(options: SourceOptions, given: Mapping[str, str], part: str, *, fails: bool) -> RegistryDecoding:
    prefix = f"{part}schema."
    values = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    settings = {name: value for name, value in values.items() if name not in _OWN}
    subject = values.get("subject") or _subject(options, part)
    version = values.get("version", "latest")
    if version != "latest" and not (version.isascii() and version.isdigit()):
        raise OptionError(f"{part}Schema.version must be 'latest' or a number, got {version!r}")
    decoding = RegistryDecoding.resolve(
        _url(values, part),
        settings,
        subject=subject,
        version=version,
        part=part,
        message=values.get("message"),
        fails=fails,
    )
    decoding.registered()  # a schema that cannot be columns fails here, not in a task
    return decoding


def _url(values: Mapping[str, str], part: str) -> str:
    """The registry's URLs. Raises OptionError for a password in an option that Spark would show."""
    shown, hidden = values.get("registry"), values.get("registry.url")
    if shown is not None and hidden is not None:
        raise OptionError(f"{part}Schema.registry and {part}Schema.registry.url are the same: omit one of them")
    login = next((name for name in values if name.endswith("basic.auth.user.info")), None)
    if login is not None or "@" in (shown or ""):
        name = "registry" if login is None else login
        raise OptionError(
            f"Spark shows {part}Schema.{name} in plans and logs, with its password; give {part}Schema.registry.url as "
            "http://USER:PASSWORD@HOST:PORT, which Spark hides"
        )
    return shown or hidden or ""


def _subject(options: SourceOptions, part: str) -> str:
    """The subject of the only topic."""
    topics = {partition.topic for partition in options.assign} | set(options.subscribe)
    if len(topics) != 1:
        raise OptionError(f"{part}Schema.subject is needed: only for a single topic it is TOPIC-{part} by default")
    return f"{topics.pop()}-{part}"
