"""Transactions that hang on partitions led here (KIP-664): finding, reporting and, if asked to, ending them."""
