"""Apache Kafka's command-line tools administer three brokers: what they print, recorded beside Apache Kafka's own."""
