"""The cluster as a whole: its versions, brokers and features."""
