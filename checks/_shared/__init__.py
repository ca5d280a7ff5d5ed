"""What checks of several families share."""
