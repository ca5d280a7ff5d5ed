"""A report in each format: one module, one `render`."""
