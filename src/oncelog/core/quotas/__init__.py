"""Client quotas as pure machines: rates over windows, token buckets, the limit that holds for a client."""
