"""The cluster as one value: what the nodes of its tree hold, and the image that follows their changes."""
