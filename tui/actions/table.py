"""Which function carries out which action of netdoctor.tui.keys; the modules beside this one enter theirs."""

from collections.abc import Callable

from netdoctor.tui.keys import BY_ID
from netdoctor.tui.stage import Stage

Do = Callable[[Stage], None]
DO: dict[str, Do] = {}


def does(name: str) -> Callable[[Do], Do]:
    """Decorate the function that carries out an action."""

    def enter(function: Do) -> Do:
        if name not in BY_ID or name in DO:
            raise ValueError(f"{name}: no action, or one that has a function")
        DO[name] = function
        return function

    return enter


def act(stage: Stage, name: str) -> None:
    """Carry out an action by its id, or say why it cannot be done here and now."""
    stage.status = ""
    action = BY_ID[name]
    if stage.allowed(action):
        DO[name](stage)
    else:
        stage.say(stage.why_not(action))
