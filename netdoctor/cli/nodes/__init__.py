"""Commands about nodes over time."""
