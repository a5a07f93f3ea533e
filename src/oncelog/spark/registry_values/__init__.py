"""Keys and values by their schemas in a registry, decoded in the tasks that read them."""
