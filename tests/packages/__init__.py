"""The package as users get it: what a build contains, and installations of the wheel with their extras."""
