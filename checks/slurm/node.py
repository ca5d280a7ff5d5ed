"""A task of Slurm's on the node, and the agent in it."""

from collections.abc import Iterator
from dataclasses import replace

from netdoctor.check import check
from netdoctor.checks._shared.text import is_host_name
from netdoctor.facts.host import Login, Node, Session
from netdoctor.model import CONTROL, SUSPECTED, Cause, Finding, Fix, in_hosts, look, run, seen, unknown

_AGAIN = look("scan again; where it happens twice, look at the node's slurmd", "", on=CONTROL)
_FROM_A_NODE = run(
    "or look from a node, in a batch job of as many nodes as you need",
    "sbatch --nodes=2 --exclusive --wrap='netdoctor scan --via slurm --no-save'",
    on=CONTROL,
)
_PORTS = run(
    "or let the nodes call this machine: SrunPortRange in slurm.conf, and those ports opened here, which "
    "srun itself needs",
)
_RULES = look(
    "find the rule that stops what it sends to this machine, and accept that before it",
    "nft list ruleset || iptables-save",
    root=True,
)
_RULES_HERE = look(
    "find the rule here that stops what nodes send, and accept that before it",
    "nft list ruleset || iptables-save",
    on=CONTROL,
    root=True,
)
_SRUN = look(
    "see whether srun itself gets an answer, which takes the same way",
    "srun -w NODE -n1 hostname",
    on=CONTROL,
)
_SLURMD = look(
    'see what its slurmd says: "connect io" is that way, and a prolog that takes long is not',
    "journalctl -u slurmd -n 50 --no-pager",
    root=True,
)
# A task runs and cannot call: from some nodes, from none at all; and where srun hears nothing of one, either.
_CUT_OFF = Cause(
    "slurm-no-way-back", "Tasks run on {nodes}, and cannot call netdoctor on this machine", SUSPECTED
)
_CUT_OFF_HERE = Cause("slurm-no-way-here", "No task of Slurm's can call netdoctor on this machine", SUSPECTED)
_SILENT = Cause("slurm-silent", "srun on this machine hears nothing of its tasks on {nodes}", SUSPECTED)
_SILENT_HERE = Cause("slurm-silent-here", "srun on this machine hears nothing of any of its tasks", SUSPECTED)
# (whether the task itself has said so, whether no node can) -> as below.
NO_WAY_BACK: dict[tuple[bool, bool], tuple[Cause, tuple[Fix, ...]]] = {
    (True, False): (_CUT_OFF, (_RULES, _PORTS)),
    (True, True): (_CUT_OFF_HERE, (_RULES_HERE, _PORTS, _FROM_A_NODE)),
    (False, False): (_SILENT, (_SRUN, _SLURMD, _RULES)),
    (False, True): (_SILENT_HERE, (_RULES_HERE, _PORTS, _FROM_A_NODE)),
}
# A cause and what to do, NODE for the node as Slurm calls it; what is only suspected is `unknown`.
OUTCOMES: dict[Login, tuple[Cause, tuple[Fix, ...]]] = {
    Login.NAME: (
        Cause("slurm-name", "Slurm knows no {nodes}"),
        (look("take the names from Slurm's own list", "sinfo -N -o '%N %T'", on=CONTROL),),
    ),
    Login.DRAINED: (
        Cause("slurm-drained", "Slurm starts no jobs on {nodes}"),
        (
            look("see who took it out, and why", "scontrol show node NODE", on=CONTROL),
            run(
                "once that is mended, give it back", "scontrol update NodeName=NODE State=RESUME", on=CONTROL
            ),
        ),
    ),
    Login.DOWN: (
        Cause("slurm-down", "{nodes} {is} down for Slurm"),
        (
            look(
                "see whether its slurmd runs, and what it says",
                "systemctl --no-pager status slurmd",
                root=True,
            ),
            run("once it runs, give it back", "scontrol update NodeName=NODE State=RESUME", on=CONTROL),
        ),
    ),
    Login.STEP: (
        Cause("slurm-step", "Slurm starts no task of ours on {nodes}"),
        (
            look("start one by hand", "srun -w NODE -n1 hostname", on=CONTROL),
            look("see what its slurmd says", "journalctl -u slurmd -n 50 --no-pager", root=True),
        ),
    ),
    Login.INTERPRETER: (
        Cause("slurm-interpreter", "{nodes} {has} no Python at the place asked for"),
        (in_hosts("name one that is there: python=PATH in the hosts file, or --python"),),
    ),
    Login.OLD_PYTHON: (
        Cause("slurm-old-python", "The Python of {nodes} is too old for netdoctor"),
        (in_hosts("name one of 3.6 or newer: python=PATH in the hosts file, or --python"),),
    ),
    Login.BUSY: (
        Cause("slurm-busy", "{nodes} {was} not free, and {was} not looked at", SUSPECTED),
        (look("see which jobs it has, or scan inside of an allocation", "squeue -w NODE", on=CONTROL),),
    ),
    Login.CONTROL: (
        Cause("slurm-refused", "Slurm did not let netdoctor look at {nodes}", SUSPECTED),
        (
            look(
                "ask Slurm for the same by hand: account, partition and limits are its own",
                "sinfo",
                on=CONTROL,
            ),
        ),
    ),
    Login.LOST: (Cause("slurm-lost", "netdoctor lost its task on {nodes}", SUSPECTED), (_AGAIN,)),
    Login.TIMEOUT: (
        Cause("slurm-timeout", "netdoctor ran out of time with {nodes}", SUSPECTED),
        (
            look(
                "see whether Slurm's own way back is open: where this hangs too, a firewall drops what nodes "
                "send to this machine",
                "srun -w NODE -n1 hostname",
                on=CONTROL,
            ),
            _PORTS,
            _FROM_A_NODE,
        ),
    ),
}


@check(after=(), via="slurm", source="https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES")
def slurm_node(node: Node, session: Session) -> Iterator[Finding]:
    """Slurm starts a task on the node, and netdoctor's agent answers from it.

    Looks at:
        The node's state and reason in Slurm's books (sinfo), one task in a step of the allocation, and the
        connection that it opens to this machine.

    Matters because:
        A job gets no node that Slurm keeps off, and where no task starts, none of the job's does.

    Fix:
        Each class has its own: see the cause. A node goes back with State=RESUME, once its reason is mended.
    """
    said = session.detail or session.outcome.replace("_", " ")
    running = session.outcome == Login.OK
    if running and not session.detail:
        return
    if session.outcome == Login.NO_WAY_BACK:
        yield _no_way_back(node, session)
        return
    # A job that has a node keeps it while it is drained.
    known = OUTCOMES.get(Login.DRAINED if running else session.outcome)
    if known is None:
        yield unknown(node.id, f"a task ended in a way that netdoctor does not know: {said}")
        return
    cause, fixes = known
    say = cause.warn if running else cause.unknown if cause.confidence is SUSPECTED else cause.fail
    yield say(
        said,
        culprits=(CONTROL,) if session.outcome == Login.CONTROL else (),
        observed=said,
        expected="a node that Slurm gives to jobs, and a task on it that answers",
        seen=seen("sinfo, srun", said),
        fixes=[_about(node, fix) for fix in fixes],
    )


def _no_way_back(node: Node, session: Session) -> Finding:
    """Tasks that cannot call: the node's, unless none can."""
    dialled, none_can = session.stage == "connect", session.trouble is not None
    cause, fixes = NO_WAY_BACK[dialled, none_can]
    said = f"its task ran, and could not call {session.detail}" if dialled else session.detail
    return cause.unknown(
        said,
        culprits=(CONTROL,) if none_can else (),
        observed=said,
        expected="a connection from the task to netdoctor here" if dialled else "what the task says, by srun",
        seen=seen("the task, by srun" if dialled else "srun", said),
        fixes=[_about(node, fix) for fix in fixes],
    )


def _about(node: Node, fix: Fix) -> Fix:
    """The fix with the node's name in its commands, or without those where it should stand in none."""
    name = node.host if is_host_name(node.host) else ""
    commands = (replace(one, shell=one.shell.replace("NODE", name)) for one in fix.commands)
    return replace(fix, commands=tuple(one for one in commands if name))
