"""A site's own checks for netdoctor."""
