"""From a frame to its response: deciding requests, the order per connection, tasks that wait, work in slices."""
