"""Derives ``oncelog.wire.messages`` from kio's field metadata: ``python -m codegen`` rewrites them.

kio (a development dependency) has one dataclass per message and version, generated from Apache Kafka's message
definitions. Here its versions are merged into one class per message whose fields know their versions.
"""
