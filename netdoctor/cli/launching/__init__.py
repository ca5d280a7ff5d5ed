"""Commands that run before a launch: the job itself for a while, and the work that it will do."""
