"""Messages to other brokers as Kafka's own requests over links: what a loop-back does for messages to this one."""
