"""Errors that end a command with a documented exit code and one clear line."""


class InputError(ValueError):
    """The user can put this right: exit 2, nothing was contacted. The message says what to change."""


class DeadlineReached(Exception):
    """`--deadline` has passed; what is known is reported."""
