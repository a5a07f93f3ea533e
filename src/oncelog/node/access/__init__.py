"""Access control: the authoriser, and the logs of denials, ACL changes and administrative aborts."""
