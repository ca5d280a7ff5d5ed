"""Checks of HCAs and RDMA: one file each, `checks/rdma/<property>.py` is `rdma.<property>`."""
