"""Checks are watched before the tests of this folder import them."""

from .injection import watch

watch()
