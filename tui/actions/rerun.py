"""Scanning again, and what can be done while a scan goes on."""

from dataclasses import replace

from netdoctor.report import fmt
from netdoctor.tui.actions.table import does
from netdoctor.tui.dialogs import Choice, Picker, matching
from netdoctor.tui.keys import BY_ID
from netdoctor.tui.runner import Request
from netdoctor.tui.stage import Stage
from netdoctor.tui.state import not_green


@does("rerun")
def rerun(stage: Stage) -> None:
    """What is under the cursor: a cell, a row, a column, pairs, a cause."""
    view, key, cells = stage.where.view, stage.page.key, stage.state.cells
    if view == "matrix":
        run(stage, Request(checks=stage.matrix.checks or None, nodes=stage.nodes_here))
    elif view == "node" and isinstance(key, tuple) and key[0] == "cell":
        run(stage, Request(checks=(key[1],), nodes=(key[2],)))
    elif view == "node":
        run(stage, Request(nodes=stage.nodes_here))
    elif view in ("pairs", "pair"):
        if stage.kind in cells.checks:
            run(stage, Request(checks=(stage.kind,)))
    elif (item := stage.cause) is not None:
        # With what it holds up and explains: that is what should turn green, too.
        also = [e for e in item.explains if e.check in cells.checks]
        checks = dict.fromkeys([*item.checks, *(e.check for e in also)])
        nodes = dict.fromkeys([*item.node_list, *(e.target for e in also)])
        names = set(cells.nodes)
        run(
            stage,
            Request(
                checks=tuple(c for c in checks if c in cells.checks) or None,
                nodes=tuple(n for n in nodes if n in names) or None,
            ),
        )
    else:
        stage.say("no cause under the cursor; R runs what is not green, Ctrl-R everything")


@does("rerun-bad")
def rerun_bad(stage: Stage) -> None:
    if stage.state.report is None:
        run(stage, Request())
        return
    checks, nodes = not_green(stage.state.cells)
    if not checks:
        stage.say("everything is green; Ctrl-R runs everything again")
        return
    run(stage, Request(checks=checks, nodes=nodes))


@does("rerun-all")
def rerun_all(stage: Stage) -> None:
    run(stage, Request())


@does("format")
def format_(stage: Stage) -> None:
    runner = stage.runner
    if runner is None:
        return

    def choices(text: str) -> list[Choice]:
        return matching(text, [(f, f, "in use" if f == runner.formats[0] else "") for f in runner.formats])

    def chosen(name: str | None) -> None:
        if name in runner.formats:
            runner.read_as(name)
            run(stage, Request())

    stage.push_screen(Picker("read the host list as", choices), chosen)


def run(stage: Stage, request: Request) -> None:
    """Scan, after asking where that has to be asked."""
    runner, report = stage.runner, stage.state.report
    if runner is None or runner.cannot:
        stage.say(stage.why_not(BY_ID["rerun"]))
        return
    if stage.state.scanning:
        stage.say("a scan goes on; x stops it")
        return
    # Not what is shown: checks come along that are waited for, and experiments that checks need.
    will = {} if report is None else runner.will_run(request, report)
    costly = {check: cost for check, cost in will.items() if cost != "read-only"}
    costs = set(costly.values())
    question = [] if stage.agreed else stage.question_lines(fmt.plain(runner.question, 600))
    if costs - stage.agreed_costs:
        every = f"all {len(stage.state.cells.nodes)} nodes"
        nodes = fmt.fold(request.nodes, 60) if request.nodes else every
        does_ = "open ports and load GPUs" if "loads-gpu" in costs else "open ports"
        does_ += ", write small files," if "writes-file" in costs else ""
        names = fmt.plain(", ".join(costly), 200)
        question += stage.question_lines(
            f"{names} will {does_} for a moment on {nodes} and their peers. Go on?"
        )

    def begin() -> None:
        stage.agreed = True
        stage.agreed_costs |= {*costs, "opens-port"} if costs else costs  # both questions name ports
        runner.begin(request, report)

    if question:
        stage.ask(question, begin, lambda: stage.say("nothing was run"))
    else:
        begin()


@does("stop")
def stop(stage: Stage) -> None:
    if stage.runner is not None:
        stage.runner.stop()
        stage.where = replace(stage.where, paused=False)
        stage.say("stopping; what is known will be judged")


@does("pause")
def pause(stage: Stage) -> None:
    stage.where = replace(stage.where, paused=not stage.where.paused)
    stage.say("the picture is held; the scan goes on; p lets it go" if stage.where.paused else "")


@does("follow")
def follow(stage: Stage) -> None:
    stage.where = replace(stage.where, following=not stage.where.following)
    yes, no = "the cursor follows new problems", "the cursor stays where you put it"
    stage.say(yes if stage.where.following else no)
