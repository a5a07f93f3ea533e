"""From a frame to its response: deciding requests in order per connection, tasks that wait, work in slices."""
