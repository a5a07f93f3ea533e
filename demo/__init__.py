"""The demonstration: a year of real flights through a real client, a broker, and a load that is killed half way."""
