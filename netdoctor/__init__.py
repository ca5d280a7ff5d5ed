"""netdoctor: preflight diagnostics for multi-node GPU training."""

__version__ = "0.2.0"
