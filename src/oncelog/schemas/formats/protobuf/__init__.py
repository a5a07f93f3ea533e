"""Protobuf schemas: `.proto` text and descriptors, each made from the other."""
