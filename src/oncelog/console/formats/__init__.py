"""Decoders for keys and values that need a library: MessagePack, and Avro and Protobuf with schema files.

Bytes of the cluster reach these libraries only in a separate process (``decoder_worker``), limited in memory and time:
deep nesting makes Avro's reader segfault, and a count in a few bytes lets it build lists for hours.
"""
