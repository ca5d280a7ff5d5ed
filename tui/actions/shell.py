"""The terminal lent to other programs: an editor for the host list, ssh to a node."""

import shlex

from netdoctor.report import fmt
from netdoctor.tui.actions.table import does
from netdoctor.tui.stage import Stage


def edit_input(stage: Stage) -> None:
    """Open the host list that could not be used."""
    file = stage.runner.editor() if stage.runner is not None else None
    if file is None:
        stage.say("no file to open here, or no editor: set EDITOR")
    elif stage.lend_terminal(file[1]):
        stage.say("R reads it again and scans")


@does("shell")
def shell(stage: Stage) -> None:
    runner, names = stage.runner, stage.nodes_here
    argv = runner.ssh(names[0]) if runner is not None and names else None
    if runner is None or argv is None:
        stage.say("no node under the cursor that a shell can be opened on")
        return

    def go() -> None:
        # The terminal belongs to ssh then, and what the node says to ssh alone.
        stage.agreed = True
        stage.lend_terminal(argv)

    if stage.agreed:
        go()
        return
    command = stage.question_lines(fmt.escaped(shlex.join(argv)), "command", indent=3)
    stage.ask([*stage.question_lines(fmt.plain(runner.question, 600)), *command], go)
