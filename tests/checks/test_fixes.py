"""What holds for every fix: shells accept it, what looks changes nothing, and what may hurt says so."""

import importlib
import pkgutil
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import netdoctor.checks
from netdoctor.checks._shared.env import change, each_its_own
from netdoctor.checks._shared.outcomes import Outcomes
from netdoctor.checks.gpu.visible import gpu_visible
from netdoctor.checks.rdma.gid import fill_gids
from netdoctor.checks.rdma.port import link_fixes
from netdoctor.checks.rdzv.port_free import rdzv_port_free
from netdoctor.checks.ssh.login import OUTCOMES, words
from netdoctor.engine.assemble.commands import guarded
from netdoctor.facts.host import Login
from netdoctor.facts.net import Listener, PortHolderFacts
from netdoctor.model import Fix, Kind
from netdoctor.rules.variables import Setting, Source
from tests.hostile import HOSTILE

from .build import RDZV, host, job, net, nets, node, session
from .build_hw import gpus, hca, pci, roce_port

# What no command that only looks may have in it: it changes a machine.
_PROGRAMS = [
    "kill",
    "rm",
    "mv",
    "cp",
    "chmod",
    "chown",
    "modprobe",
    "insmod",
    "rmmod",
    "reboot",
    "poweroff",
    "tee",
    "usermod",
    "mount",
    "umount",
    "nft",
]
CHANGES = re.compile(
    rf"(?:^|[;|&(] ?|sudo )(?:{'|'.join(_PROGRAMS)}) (?!list )|\bsed -i"
    r"|systemctl (?:\S+ )*(?:stop|start|restart|reload|enable)"
    r"|\bip (?:link set|route (?:add|del|replace))|(?<![<2&])>(?!&|\s*/dev/null)"
)
# What ends something that somebody may need.
HURTS = re.compile(r"\b(kill|reboot|poweroff|power cycle|modprobe -r|gpu-reset|ip link set dev \S+ down)\b")

# Whatever a table of outcomes asks for, ``n1``.
EACH = defaultdict[str, str](lambda: "n1")


@cache
def constants() -> dict[str, Fix]:
    """Every fix that stands in a module of checks, by its place."""
    found: dict[str, Fix] = {}
    for module in pkgutil.walk_packages(netdoctor.checks.__path__, "netdoctor.checks."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for number, fix in enumerate(value if isinstance(value, tuple) else (value,)):
                if isinstance(fix, Fix):
                    found[f"{module.name.removeprefix('netdoctor.checks.')}.{name}.{number}"] = fix
                elif isinstance(fix, Outcomes):
                    place = module.name.removeprefix("netdoctor.checks.")
                    found |= {f"{place}.{word}": step.fix(EACH) for word, step in fix.fix.items()}
    return found


def of(text: str) -> Iterator[Fix]:
    """Fixes that are made of what a machine said, where all of it says `text`."""
    names = {"outcome": "", "address": text, "user": text, "known_as": text, "known_hosts": text, "via": text}
    told = session(**names, interpreter=text, offered=text, detail=f"not available {text}")
    filled = words(node(id=text, host=text, source=text, line=3), told)
    yield from (step.fix(filled) for step in OUTCOMES.fix.values())
    for name in (text, "NCCL_IB_DISABLE"):
        for source in Source:
            for origin in (text, f"/etc/{text}"):
                yield from change(Setting(name, text, origin, source), names=(name,))
                yield from change(Setting(name, text, origin, source), text)
    yield each_its_own({"n1": text}, "NCCL_SOCKET_IFNAME", "/etc/nccl.conf", text="x")
    for phase in ("Disabled", "Polling", "LinkUp"):
        yield from link_fixes(hca(text, netdevs=(text,)), roce_port(text, phys_state=phase), None)
    listener = Listener(port=RDZV, address=text, pid=7, process=text, user=text)
    for held in rdzv_port_free({"n1": PortHolderFacts(port=RDZV, listeners=(listener,))}, job(2), nets(2)):
        yield from held.cause.fixes if held.cause else ()
    dark = gpus(devices=(), nvml="no_driver", nvml_code=9, pci=(pci(0, text), pci(1, text)))
    for finding in gpu_visible(node(), dark, host()):
        yield from finding.cause.fixes if finding.cause else ()


def shells(fixes: Iterator[Fix]) -> set[str]:
    return {command.shell for fix in fixes for command in (*fix.commands, *fix.undo)}


def test_shells_accept_every_command() -> None:
    fixed = shells(iter([*constants().values(), *fill_gids(hca("irdma0"), "eth1", net(), host())]))
    made: set[str] = set()
    for text in ("x; reboot $(reboot) `reboot` a'b", '-a"b\n=c', ESCAPES):
        made |= shells(of(text))
    assert (len(fixed) > 25, len(made) > 25) == (True, True)
    fixed |= {guarded(line, {"n1": ["n1", "10.0.0.1"]}) for line in fixed}
    # Each is parsed by itself: what one leaves open, the next must not close.
    program = 'while IFS= read -r -d "" line; do $1 -n -c "$line" || echo "$line"; done'
    for shell, lines in (("sh", fixed | made), ("bash", fixed)):
        given = b"".join(line.encode() + b"\0" for line in sorted(lines))
        done = subprocess.run(
            ["bash", "-c", program, "-", shell], input=given, capture_output=True, check=False
        )
        assert (done.stdout, done.stderr) == (b"", b"")


ESCAPES = next(text for text in HOSTILE.values() if "\x1b" in text)


def test_what_looks_changes_nothing() -> None:
    fixes = {**constants(), **{f"{o}.{i}": f for o in Login for i, f in enumerate(logged_in(o))}}
    looks = [(place, c.shell) for place, f in fixes.items() if f.kind is Kind.LOOK for c in f.commands]
    assert len(looks) > 20
    assert [found for found in looks if CHANGES.search(found[1])] == []


def logged_in(outcome: Login) -> tuple[Fix, ...]:
    filled = words(node(), session(outcome=outcome, user="root"))
    return tuple(OUTCOMES.fixes(outcome, filled)) if outcome in OUTCOMES.outcome else ()


def test_what_may_hurt_says_what_is_lost_and_is_no_low_risk() -> None:
    acting = {place: fix for place, fix in constants().items() if fix.kind is not Kind.LOOK}
    hurting = {
        place: fix for place, fix in acting.items() if any(HURTS.search(c.shell) for c in fix.commands)
    }
    assert {"gpu.visible.RELOAD.0", "gpu.driver.RESTART.0"} <= hurting.keys()
    assert [place for place, fix in hurting.items() if fix.risk == "low" or not fix.loses] == []
