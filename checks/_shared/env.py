"""Variables of a job where they come from: what changes one there, and what could not be read of them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from netdoctor.checks._shared.edits import assign
from netdoctor.checks._shared.text import quoted
from netdoctor.facts.software import EnvFacts
from netdoctor.model import JOB, Command, Fix, in_job, look, run
from netdoctor.rules.variables import Setting, Source

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What the login user may not open is closed to NCCL too, and sets nothing.
_CLOSED = ("EACCES", "ELOOP", "ENOENT", "ENOTDIR")
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
_DEFAULTS = {"NCCL_IB_DISABLE": "0", "NCCL_IB_GID_INDEX": "-1", "NCCL_P2P_DISABLE": "0"}
_LOGIN_FILES = "/etc/environment /etc/profile* ~/.bash* ~/.profile ~/.ssh/environment /etc/ssh/sshd_config*"


def change(setting: Setting, value: str | None = None, *, names: Sequence[str] = ()) -> tuple[Fix, ...]:
    """Set the variable to `value`, or take it out, where it comes from.

    A variable of one of NCCL's files is changed there: to unset it in the job would change nothing.
    names: all that are to be taken out there, where it is not this one alone.
    """
    names = names or [setting.name]
    it = "it" if len(names) == 1 else "them"
    what = f"take {it} out" if value is None else f"write {value}"
    if not all(_NAME.fullmatch(one) for one in names):
        return (Fix(text=what),)
    line = f"unset {' '.join(names)}" if value is None else export(setting.name, value)
    origin = setting.origin
    if setting.source is Source.FILE and origin.startswith("/") and len(names) == 1:
        shell, undo = assign(names[0], value, quoted(origin))
        root = origin.startswith("/etc/")
        return (run(f"{what}, in {origin}", shell, undo=undo, root=root, effect="next launch"),)
    if setting.source is Source.LOGIN:
        pattern = names[0] if len(names) == 1 else quoted("|".join(names))
        gets = f"see where the login session gets {it} from, and {what} there"
        if value is None and (default := _DEFAULTS.get(setting.name)):
            # Where the job sets it, what a login sets counts no more; where it only unsets it, it may.
            what, line = "give it NCCL's own default", export(setting.name, default)
        return (
            look(gets, f"grep -rswnE {pattern} {_LOGIN_FILES}"),
            in_job(f"{what} in the job, on every node", line),
        )
    return (in_job(f"{what}, in {origin}", line, persistent=True),)


def export(name: str, value: str) -> str:
    """The line of a job's script that sets a variable."""
    return f"export {name}={quoted(value)}"


def each_its_own(values: Mapping[str, str], name: str, file: str, **more: Any) -> Fix:
    """A value of `name` for each node, in a file there, and none in the job. more: Fix's other fields."""
    edits = {node: assign(name, value, file) for node, value in values.items()}
    commands = [Command(run_on=node, shell=shell) for node, (shell, _) in edits.items()]
    undo = tuple(Command(run_on=node, shell=back) for node, (_, back) in edits.items())
    return Fix(commands=(Command(run_on=JOB, shell=f"unset {name}"), *commands), undo=undo, root=True, **more)


def unread(login: EnvFacts | None) -> str:
    """Why it is not known what a node's login session and NCCL's files set; empty where it is."""
    if login is None:
        return "the variables of its login session could not be read"
    for conf in login.nccl_conf:
        if conf.error is not None and conf.error not in _CLOSED:
            return f"{conf.path} could not be read: {conf.error}"
    return ""
