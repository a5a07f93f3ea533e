"""``oncelog acl``: access control lists of oncelog and Apache Kafka clusters."""
