"""Links: the connections by which this broker asks others, as a machine without sockets."""
