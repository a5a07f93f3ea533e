"""Virtual time, machines with disks and brokers, the network between them and the coordination tree."""
