"""Finds, reports and, if configured, aborts transactions that hang on partitions led here (KIP-664)."""
