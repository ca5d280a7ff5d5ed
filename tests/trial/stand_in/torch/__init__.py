"""As much of torch as a probe looks at: groups that really meet over TCP, and optimizers with hooks."""
