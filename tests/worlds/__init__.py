"""What nodes contain, in its variations, drawn by seed."""
