"""What keys, clicks, help and palette do to the stage: one function per action, by subject."""

from netdoctor.tui.actions import copy, files, matrix, menu, rerun, shell, views, walk
from netdoctor.tui.actions.table import DO, act

__all__ = ["DO", "act", "copy", "files", "matrix", "menu", "rerun", "shell", "views", "walk"]
