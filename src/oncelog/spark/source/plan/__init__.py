"""Planning on the driver: from options and the cluster's offsets to the ranges that tasks read.

``offset_planner`` resolves options to offsets; ``stream_planner`` does so for each micro-batch and compares positions.
``stable_offset_watch`` names the transaction that blocks a partition's last stable offset.
"""
