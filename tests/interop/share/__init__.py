"""Share groups (KIP-932) with real clients: on Apache Kafka, which is the judge of these tests, and on ours."""
