"""Topics, brokers, configs and features of the cluster: the image of them, and the decisions that change them."""
