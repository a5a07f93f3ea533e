"""A schema registry over the topic `_schemas`, with the routes and records of Confluent's."""
