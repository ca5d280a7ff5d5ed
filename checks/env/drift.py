"""Variables of sessions that differ between nodes, or were set to look for a fault."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from netdoctor.check import check
from netdoctor.checks._shared.env import change, export
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import unlike_expected_by_name
from netdoctor.checks._shared.text import listing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import NetFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import CLUSTER, CONSTANT, PEERS, Cause, Finding, Fix, Status, in_job, ok, run, seen
from netdoctor.rules import variables as rules
from netdoctor.rules.leftovers import leftover
from netdoctor.rules.variables import Environment, effective_env

UNSET = "unset"
SELF = "{own}"
CRIPPLING = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_CHECKS_DISABLE")
FAMILIES = re.compile(
    r"(NCCL|GLOO|PYTORCH|CUDA|CUBLAS|CUDNN|HF|OMP|MKL|KMP|UCX|FI|TRITON)_[A-Z0-9_]+|(TORCH|PYTHON)[A-Z0-9_]+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD"
)
# What may be expected of a variable: its value, or whether it is set at all.
VALUE, SET = "env.value.*", "env.set.*"
UNEXPECTED = Cause("env-not-as-typed", "variables of {nodes} are not as expected")
BRING = run("set it for the job, the same everywhere, or remove it from the node's start-up files")
# Of these it is told, too, that nobody sets them.
LOADERS = ("LD_LIBRARY_PATH", "LD_PRELOAD")
# nccl.env speaks of them wherever they are set.
JUDGED = {*rules.WORDS, *rules.RENAMED, *CRIPPLING, "NCCL_DEBUG"}
PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
# What a process prints, keeps or leaves beside its work: of no matter to the others.
HARMLESS = re.compile(
    r"PYTHON(UNBUFFERED|DONTWRITEBYTECODE|PYCACHEPREFIX|FAULTHANDLER|WARNINGS|NODEBUGRANGES|BREAKPOINT|IOENCODING"
    r"|_COLORS|_HISTORY)|TORCH_(LOGS|CPP_LOG_LEVEL|SHOW_CPP_STACKTRACES)|(NCCL_DEBUG_SUBSYS|(NCCL|GLOO|UCX|FI)_LOG_LEVEL)"
    r"|HF_HUB_(DISABLE_\w+|VERBOSITY)|(OMP|KMP)_(DISPLAY_ENV|DISPLAY_AFFINITY|WARNINGS|VERSION|SETTINGS)"
)
# What names a node's own devices or its place in a job: nccl.ifname, nccl.ib-hca and gpu.visible look at it.
NODES_OWN = re.compile(
    r"(NCCL|GLOO)_SOCKET_IFNAME|NCCL_IB_HCA|NCCL_IB_GID_INDEX|NCCL_(TOPO|GRAPH)_\w+|NCCL_DEBUG_FILE|NCCL_HOSTID"
    r"|UCX_NET_DEVICES|FI_\w*IFACE|CUDA_VISIBLE_DEVICES|CUDA_MPS_\w+|TORCHELASTIC_\w+|OMP_PLACES|KMP_AFFINITY"
    r"|PYTHON(HASHSEED|STARTUP)"
)


def differences(
    envs: Mapping[str, Environment],
    hosts: Mapping[str, HostFacts],
    nets: Mapping[str, NetFacts],
    expect: Expectations | None = None,
) -> Iterator[Finding]:
    """A finding for each variable and node that has another value than most; between two, who sets it. Nodes
    of which the user has said what the variable is to be are none of them."""
    for name in sorted({name for env in envs.values() for name in env if _compared(name)}):
        raw = {node: env[name].value if name in env else "" for node, env in envs.items()}
        if expect:
            expected = {*expect.for_nodes(VALUE, raw, name), *expect.for_nodes(SET, raw, name)}
            raw = {node: value for node, value in raw.items() if node not in expected}
        if len(set(raw.values())) == 1:
            continue
        names_of = {node: _own_words(node, hosts.get(node), nets.get(node)) for node in raw}
        values = {node: _common_form(name, value, names_of[node]) or UNSET for node, value in raw.items()}
        yield from _differing(name, values, envs)


def unlike_expected(envs: Mapping[str, Environment], expect: Expectations | None) -> Iterator[Finding]:
    """Compare variables with what is expected: their values, and whether they may be set at all."""
    if expect is None:
        return
    values, set_expected = expect.names(VALUE), expect.names(SET)
    # What a job sets is not what its nodes have.
    nodes_own = (rules.Source.LOGIN, rules.Source.FILE)
    have = {
        node: {
            name: setting.value or "(empty)"
            for name, setting in env.items()
            if name in values or (FAMILIES.fullmatch(name) and setting.source in nodes_own)
        }
        for node, env in envs.items()
    }
    is_set = {
        node: {name: "on" if name in env else "off" for name in (*LOADERS, *set_expected)}
        for node, env in envs.items()
    }

    more: dict[str, Any] = {"status": Status.WARN, "fixes": lambda *_: BRING}
    yield from unlike_expected_by_name(have, "value", UNEXPECTED, VALUE, expect, **more)
    yield from unlike_expected_by_name(is_set, "setting", UNEXPECTED, SET, expect, **more)


def _compared(name: str) -> bool:
    elsewhere = name in JUDGED or name in rules.MUST_BE_EQUAL or name in rules.RANKS
    return FAMILIES.fullmatch(name) is not None and not elsewhere and not NODES_OWN.fullmatch(name)


def _own_words(node: str, host: HostFacts | None, net: NetFacts | None) -> list[str]:
    """What names this node alone: its names and addresses."""
    names = {node, *((host.hostname, host.fqdn, host.hostname.partition(".")[0]) if host else ())}
    addresses = {row.address for row in (net.addresses if net else ()) if row.scope != "host"}
    return sorted({w for w in names | addresses if len(w) > 1 and w != "localhost"}, key=len, reverse=True)


def _common_form(name: str, value: str, names_of: list[str]) -> str:
    """A value as others would have it; of a search path without empty and repeated entries."""
    if name in PATHS:
        parts = re.split(r"[:\s]" if name == "LD_PRELOAD" else ":", value)
        value = ":".join(dict.fromkeys(part.rstrip("/") or "/" for part in parts if part))
    for word in names_of:
        if word in value:
            value = re.sub(rf"(?<![A-Za-z0-9.]){re.escape(word)}(?![A-Za-z0-9])", SELF, value)
    return value


def _path_difference(here: str, typical: str) -> str:
    """How a search path differs from the usual one: ``+/opt/nccl/lib, -/usr/local/cuda/lib64``."""
    here_parts, others = here.split(":"), typical.split(":")
    more = [f"+{one}" for one in here_parts if one not in others] + [
        f"-{one}" for one in others if one not in here_parts
    ]
    return ", ".join(more[:4]) or "another order"


def _differing(name: str, values: Mapping[str, str], envs: Mapping[str, Environment]) -> Iterator[Finding]:
    spread = majority(values)
    if HARMLESS.fullmatch(name):
        sides = "; ".join(
            f"{one[:60]} on {listing(nodes, 3)}" for one, nodes in list(spread.groups.items())[:3]
        )
        yield ok(CLUSTER, f"{name} is {sides}: no effect on the job")
        return
    typical, key = spread.value, name.lower().replace("_", "-")
    cause = Cause(
        f"env-differs-{key}", name + " of {nodes} is not that of other nodes", confidence=spread.confidence
    )
    # Between two nodes the one that sets it is the one to look at.
    blamed = {node: text for node, text in spread.minority.items() if typical or text != UNSET}
    for node, text in blamed.items():
        setting = envs[node].get(name)
        if setting and leftover(name, setting.value):  # told as that
            continue
        if setting and name in rules.INTEGERS and not rules.is_plain_number(setting.value):  # by nccl.env
            continue
        others = typical or listing([one for one in spread.groups if one != text], 3)
        difference = ""
        if name in PATHS and typical and UNSET not in (text, typical):
            difference = f" ({_path_difference(text, typical)})"
        fixes: tuple[Fix, ...] = change(setting) if setting else ()
        # A value without a node's own name in it is the same for all.
        if typical and typical != UNSET and SELF not in typical:
            fixes = (in_job("set it in the job, the same on every node", export(name, typical)),)
        origin = setting.origin if setting else "nowhere"
        yield cause.warn(
            f"{name} is {text[:120]}{f' here ({origin})' if setting else ' here'}, on "
            f"{'most' if typical else 'other'} nodes {others[:120]}{difference}",
            at=node,
            observed=text[:300],
            expected=PEERS((typical or "the same on all nodes")[:300]),
            seen=seen(origin, f"{name}={text[:300]}", "file"),
            fixes=fixes,
        )


# Of more variables than these a node has another environment, and not as many faults.
MANY = 5
OTHER = Cause("env-other", "logins on {nodes} get another environment than on other nodes")


@check(
    required=False,
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#setting-values",
    expects={VALUE: str, SET: bool},
)
def env_drift(
    envs: Mapping[str, EnvFacts],
    hosts: Mapping[str, HostFacts] | None,
    nets: Mapping[str, NetFacts] | None,
    job: Job,
    expect: Expectations | None = None,
) -> Iterator[Finding]:
    """Variables of torch, CUDA, Python and the loader are equal on all nodes, with none left from debugging.

    Looks at:
        NCCL_*, GLOO_*, TORCH*, CUDA_*, HF_*, OMP_*, PYTHON*, UCX_*, FI_*, LD_LIBRARY_PATH and LD_PRELOAD
        as a process of the job sees them: what the job sets (``--env-file``) wins over the login session.
        A node's own name or address in a value is not a difference. Variables that only change a log are
        a note. Variables on which ranks must agree belong to ``nccl.env``. Secrets never leave a node.

    Matters because:
        A process that a launcher starts by SSH inherits the session of its node. A module that is loaded
        on some nodes only brings other libraries and other defaults there. A variable left from a
        debugging session (CUDA_LAUNCH_BLOCKING=1) makes every job slower, without any message.

    Fix:
        Set it for the job, the same everywhere, or remove it from the node's start-up files.
    """
    effective = {node: effective_env(env, job) for node, env in envs.items()}
    odd: dict[str, list[Finding]] = {node: [] for node in envs}
    yield from unlike_expected(effective, expect)
    for finding in differences(effective, hosts or {}, nets or {}, expect):
        if finding.cause is None:
            yield finding
        else:
            odd[finding.target].append(finding)
    for node, env in effective.items():
        yield from _left_over(node, env)
    for node, findings in odd.items():
        if len(findings) <= MANY:
            yield from findings
            continue
        names = listing([finding.summary.partition(" ")[0] for finding in findings], 6)
        yield OTHER.warn(
            f"{len(findings)} variables differ from other nodes: {names}",
            at=node,
            observed=names,
            expected=PEERS("as on the other nodes"),
            seen=[one for finding in findings[:4] for one in finding.evidence],
        )


def _left_over(node: str, env: Environment) -> Iterator[Finding]:
    for name, setting in env.items():
        if found := leftover(name, setting.value):
            text = f"{name}={setting.value[:40]}"
            cause = Cause(
                f"env-left-{name.lower().replace('_', '-')}",
                name + " is left over from debugging on {nodes}",
                see=found.source,
            )
            yield cause.warn(
                f"{text} ({setting.origin}) {found.cost}",
                at=node,
                observed=text,
                expected="unset, except while you search for a fault",
                expected_from=CONSTANT,
                seen=seen(setting.origin, text, "file"),
                fixes=change(setting),
            )
