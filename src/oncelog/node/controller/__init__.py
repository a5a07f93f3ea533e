"""The controller's duties, carried out by the broker that the image names as controller."""
