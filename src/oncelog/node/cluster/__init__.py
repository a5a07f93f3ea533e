"""The cluster as this broker knows it: the image, fed by one ordered stream of changes, and its own commits."""
