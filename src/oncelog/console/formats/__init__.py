"""Formats of keys and values that need a library: MessagePack, and Avro and Protobuf by schema file.

The rule: bytes of the cluster reach these libraries in a process of its own (``worker``) only, which has bounds on
memory and time and may crash: deep nesting ends Avro's reader with a segmentation fault, and a count in a few bytes
lets it make lists for hours. ``process`` is the console's side of it. ``schema_files`` reads ``--schema``,
``wire_format`` knows what Confluent's serializers put before a payload or into a header.
"""
