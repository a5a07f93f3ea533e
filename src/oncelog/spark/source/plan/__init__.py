"""Planning on the driver: from options and the cluster's offsets to the ranges that tasks read."""
