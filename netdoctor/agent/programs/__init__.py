"""Programs of torch: sent as text to the job's own interpreter."""
