"""Client of schema registries: settings, HTTP requests within bounds, caches, and references of schemas."""
