"""APIs of the cluster as a whole: versions, brokers, features."""
