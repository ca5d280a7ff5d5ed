"""From logs to the cause in the cluster and the live check that decides; knowledge is data."""
