"""Values of records by their schemas: bytes to Python values and back, for Avro, Protobuf and JSON Schema."""
