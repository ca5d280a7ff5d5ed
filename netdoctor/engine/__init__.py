"""What runs, in which order, with which bound; what the checks say of it; what that has in common."""
