"""`netdoctor mcp`: netdoctor as tools of an agent. See docs/agents.md."""
