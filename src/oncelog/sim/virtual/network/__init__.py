"""The network between simulated hosts: connections, their two directions, and conditions by pair of hosts."""
