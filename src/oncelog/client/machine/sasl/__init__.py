"""SASL as a client: the exchange of a connection, and SCRAM."""
