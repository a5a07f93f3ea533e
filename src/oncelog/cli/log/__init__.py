"""``oncelog log``: reads data directories offline (``dump``, ``verify``), imports logs of Kafka 0.7 (``importing``)."""
