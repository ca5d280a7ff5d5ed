"""The terminal interface: engine events and reports in, keys out. Only `app` and its widgets know Textual."""
