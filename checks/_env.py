"""Commands that change a variable where it comes from."""

import re

from netdoctor.checks._words import quoted
from netdoctor.model import Command, Fix

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_SED = re.compile(r"[A-Za-z0-9_.,:=^+-]*")
LOGIN = "login session"


def change(node: str, name: str, origin: str, value: str | None = None) -> Fix:
    """Set `name` to `value`, or take it out, where `origin` (of effective_env) says it comes from.

    A variable of one of NCCL's files is changed there: to unset it in the job would change nothing.
    """
    what = "take it out" if value is None else f"write {value}"
    line = f"unset {name}" if value is None else f"export {name}={quoted(value)}"
    if not _NAME.fullmatch(name):
        return Fix(text=what)
    if origin.startswith("/") and (value is None or _IN_SED.fullmatch(value)):
        script = f"/^{name}=/d" if value is None else f"s/^{name}=.*/{name}={value}/"
        return Fix(
            text=f"{what}, in {origin}",
            commands=(Command(run_on=node, shell=f"sed -i {quoted(script)} {quoted(origin)}"),),
            root=origin.startswith("/etc/"),
            effect="next launch",
        )
    if origin == LOGIN:
        files = "/etc/environment /etc/profile* ~/.bash* ~/.profile ~/.ssh/environment /etc/ssh/sshd_config*"
        return Fix(
            text=f"{what}, where the login session gets it from, or else in the job",
            commands=(
                Command(run_on=node, shell=f"grep -rsn {name} {files}"),
                Command(run_on="job", shell=line),
            ),
            effect="next login",
        )
    return Fix(
        text=f"{what}, in {origin}",
        commands=(Command(run_on="job", shell=line),),
        effect="next launch",
    )
