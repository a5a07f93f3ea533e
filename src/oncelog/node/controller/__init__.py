"""The controller's duties, carried out by the broker that is the controller by the image."""
