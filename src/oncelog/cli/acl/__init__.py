"""``oncelog acl``: access control lists, in oncelog and in Apache Kafka. ``explain``: who may do what, and why not."""
