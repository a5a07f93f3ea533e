"""Effects of the node carried out on an asyncio loop, and the events they end in."""
