"""What collectors and operations share to ask kernel, drivers and libraries."""
