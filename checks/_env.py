"""Commands that change a variable where it comes from."""

import re
from collections.abc import Sequence

from netdoctor.checks._words import quoted
from netdoctor.model import Command, Fix

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_SED = re.compile(r"[A-Za-z0-9_.,:=^+-]*")
LOGIN = "login session"


def change(node: str, name: str | Sequence[str], origin: str, value: str | None = None) -> Fix:
    """Set `name` to `value`, or take it out, where `origin` (of effective_env) says it comes from.

    A variable of one of NCCL's files is changed there: to unset it in the job would change nothing.
    name: several, to take out all of them.
    """
    names = [name] if isinstance(name, str) else list(name)
    it = "it" if len(names) == 1 else "them"
    what = f"take {it} out" if value is None else f"write {value}"
    if not all(_NAME.fullmatch(one) for one in names):
        return Fix(text=what)
    line = f"unset {' '.join(names)}" if value is None else f"export {names[0]}={quoted(value)}"
    if origin.startswith("/") and len(names) == 1 and (value is None or _IN_SED.fullmatch(value)):
        script = f"/^{names[0]}=/d" if value is None else f"s/^{names[0]}=.*/{names[0]}={value}/"
        return Fix(
            text=f"{what}, in {origin}",
            commands=(Command(run_on=node, shell=f"sed -i {quoted(script)} {quoted(origin)}"),),
            root=origin.startswith("/etc/"),
            effect="next launch",
        )
    if origin == LOGIN:
        files = "/etc/environment /etc/profile* ~/.bash* ~/.profile ~/.ssh/environment /etc/ssh/sshd_config*"
        pattern = names[0] if len(names) == 1 else quoted("|".join(names))
        return Fix(
            text=f"{what}, where the login session gets {it} from, or else in the job",
            commands=(
                Command(run_on=node, shell=f"grep -rswnE {pattern} {files}"),
                Command(run_on="job", shell=line),
            ),
            effect="next login",
        )
    return Fix(
        text=f"{what}, in {origin}",
        commands=(Command(run_on="job", shell=line),),
        effect="next launch",
    )
