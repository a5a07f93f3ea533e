"""Files that schemas import without a reference: Google's well-known types and common types, and Confluent's."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_GOOGLE_PROTOBUF: Final = frozenset(
    {
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
        "timestamp", "type", "wrappers",
    }
)  # fmt: skip
_GOOGLE_TYPE: Final = frozenset(
    {
        "calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval",
        "latlng", "localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday",
    }
)  # fmt: skip
_META: Final = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
option java_outer_classname = "MetaProto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_TYPE_OPTIONS: Final = """option java_package = "io.confluent.protobuf.type";
option java_multiple_files = true;
"""
_CONFLUENT: Final = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": f"""syntax = "proto3";
package confluent.type;
{_TYPE_OPTIONS}option java_outer_classname = "DecimalProto";
message Decimal {{ bytes value = 1; uint32 precision = 2; int32 scale = 3; }}
""",
    "confluent/type/variant.proto": f"""syntax = "proto3";
package confluent.type;
{_TYPE_OPTIONS}option java_outer_classname = "VariantProto";
message Variant {{ bytes metadata = 1; bytes value = 2; }}
""",
}


@cache
def known_text(path: str) -> str | None:
    return _CONFLUENT.get(path)


@cache
def known_file(path: str) -> FileDescriptorProto | None:
    """The descriptor of a file of Google's; None for any other path."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    for folder, names in (("google/protobuf/", _GOOGLE_PROTOBUF), ("google/type/", _GOOGLE_TYPE)):
        # Only these names become modules, never a path from a schema.
        if path.startswith(folder) and path.endswith(".proto") and path[len(folder) : -6] in names:
            module = import_module(f"{path[:-6].replace('/', '.')}_pb2")
            return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return None
