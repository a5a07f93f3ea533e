"""Access to the cluster: the console's clients, cached answers, rates, and HTTP statuses of errors."""
