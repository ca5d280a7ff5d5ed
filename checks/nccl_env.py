"""Variables that do not mean what they look like, differ between nodes, or cripple the job."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from netdoctor.check import check
from netdoctor.checks._env import change
from netdoctor.checks._majority import majority
from netdoctor.checks._words import listing, quoted, title_text
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    Status,
)
from netdoctor.rules.variables import (
    INTEGERS,
    MUST_BE_EQUAL,
    RANKS,
    RENAMED,
    WORDS,
    Environment,
    Setting,
    Source,
    effective_env,
    is_known_word,
    is_plain_number,
    meaning,
    param,
    parse_filter,
    values,
)

# Of these: those that nccl.ib-hca speaks of, and those that launchers set for each process.
SWITCHES = ("NCCL_IB_DISABLE", "NCCL_NET")
LAUNCHERS = ("MASTER_ADDR", "MASTER_PORT")
UNSET = "unset"
SHOWN = ("NCCL_", "GLOO_", "TORCH_", "TORCHELASTIC_", "PET_", "MASTER_", "WORLD_SIZE", "RANK", "LOCAL_")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something odd about one variable on one node. text follows the variable and its origin."""

    name: str
    key: str
    text: str
    title: str
    status: Status = Status.WARN
    expected: str = ""
    value: str | None = None
    unset: bool = True


@check(
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
)
def nccl_env(
    envs: Mapping[str, EnvFacts],
    rdma: Mapping[str, RdmaFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL's and torch's variables mean what they look like, and agree between nodes.

    Looks at:
        Variables of the job and the login session, ~/.nccl.conf (or NCCL_CONF_FILE) and
        /etc/nccl.conf, in NCCL's order: the environment wins over the files. Values are shown for
        NCCL_*, GLOO_*, torch's and the launcher's variables only.

    Matters because:
        NCCL takes a number that it cannot read for 0 (NCCL_IB_DISABLE=true leaves InfiniBand on),
        010 for 8, and a word in the wrong case for nothing, all without a message. Some variables
        must be equal on all ranks, and nothing compares them. Rank variables left in a login
        session make the next launch join as somebody else.

    Fix:
        Correct or unset the variable where the finding says it comes from.
    """
    effective = {node: effective_env(env, job) for node, env in envs.items()}
    no_hcas = rdma is not None and not any(facts.hcas for facts in rdma.values())
    differences = list(_differences(effective, no_hcas))
    differ = {(one.target, name) for name, one in differences}
    yield from (finding for _, finding in differences)
    for node, env in effective.items():
        for remark in _remarks(env, (rdma or {}).get(node), len(envs)):
            everywhere = {_value(other, remark.name) for other in effective.values()}
            finding = _finding(node, env, remark, len(everywhere) == 1)
            if (node, remark.name) in differ and finding.cause:
                # One variable of one node is one thing to correct, whatever is to be said about it.
                hint = replace(finding.cause, key=_differs(remark.name))
                finding = replace(finding, expected=None, cause=hint)
            yield finding


def _remarks(env: Environment, rdma: RdmaFacts | None, count: int) -> Iterator[Remark]:
    for name, value in values(env).items():
        if name in INTEGERS and value:
            yield from _integer(name, value)
        if name in WORDS and value:
            yield from _enum(name, value)
        if name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"):
            yield from _list(name, value)
        if name in RENAMED and RENAMED[name] not in env:
            yield Remark(
                name,
                "nccl-env-renamed",
                f"is called {RENAMED[name]} since torch 2.2",
                "variables with old names are set on {nodes}",
                value=RENAMED[name],
            )
    yield from _cripples(env)
    yield from _timeouts(env)
    yield from _transport(env, rdma)
    yield from _leftovers(env)
    if count > 1:
        yield from _proxy(env)


def _integer(name: str, value: str) -> Iterator[Remark]:
    if is_plain_number(value):
        return
    number = param(value, 0)
    title = f"{name} does not mean on {{nodes}} what it looks like"
    key = "nccl-env-number"
    text = value.strip().lower()
    if text in ("true", "yes", "on", "enable", "enabled"):
        yield Remark(
            name,
            key,
            "means 0, because NCCL reads a number",
            title,
            expected="a number: 0 as it is now, 1 if that is meant",
            value="1",
        )
    elif text in ("false", "no", "off"):
        yield Remark(name, key, "means 0 by luck, because it is no number", title, value="0")
    elif re.fullmatch(r"[+-]?0[0-9]+", value):
        meant = value.lstrip("+-0") or "0"
        yield Remark(name, key, f"means {number}, because of the leading 0", title, value=meant)
    else:
        yield Remark(name, key, f"means {number}: what follows the number is ignored", title)


def _enum(name: str, value: str) -> Iterator[Remark]:
    words = WORDS[name]
    if is_known_word(name, value):
        return
    meant = value.upper()
    if meant in ("4", "IPV4", "INET") and "AF_INET" in words:
        meant = "AF_INET"
    elif meant in ("6", "IPV6", "INET6") and "AF_INET" in words:
        meant = "AF_INET6"
    yield Remark(
        name,
        "nccl-env-word",
        f"is ignored: NCCL knows {listing(words, 11)}, with that case",
        f"{name} is ignored on {{nodes}}, because its value is no word that NCCL knows",
        expected=meant if meant in words else listing(words, 11),
        value=meant if meant in words else None,
    )


def _list(name: str, value: str) -> Iterator[Remark]:
    title = f"{name} does not mean on {{nodes}} what it looks like"
    body = value.lstrip("^=")
    items = body.split(",")
    if any(item != item.strip() for item in items):
        clean = value[: len(value) - len(body)] + ",".join(item.strip() for item in items)
        yield Remark(
            name,
            "nccl-env-list",
            "has spaces, which belong to the names: those entries match nothing",
            title,
            expected=clean,
            value=clean,
        )
    if any(item.strip()[:1] in ("^", "=") for item in items[1:]):
        spec = parse_filter(value)
        head = ("^" if spec.exclude else "") + ("=" if spec.exact else "")
        clean = head + ",".join(item.strip().lstrip("^=") for item in items)
        yield Remark(
            name,
            "nccl-env-list",
            "repeats ^ or =, which count at the start of the whole list only",
            title,
            expected=clean,
            value=clean,
        )
    if value.startswith("=^"):
        yield Remark(
            name,
            "nccl-env-list",
            "looks for a name that begins with ^: to exclude exactly, write ^=",
            title,
            expected="^=" + body,
            value="^=" + body,
        )
    if name == "NCCL_SOCKET_IFNAME" and len(value) == 1:
        yield Remark(name, "nccl-env-list", "is too short to count, and is ignored", title)


def _cripples(env: Environment) -> Iterator[Remark]:
    for name, effect in (
        ("NCCL_P2P_DISABLE", "keeps GPUs of a node from talking over NVLink and PCIe"),
        ("NCCL_SHM_DISABLE", "keeps ranks of a node from talking over shared memory"),
        ("NCCL_CHECKS_DISABLE", "switches off NCCL's checks of arguments"),
    ):
        if param(_value(env, name), 0) != 0:
            yield Remark(
                name, "nccl-env-slow", effect, f"{name} slows down the job on {{nodes}}", expected="unset"
            )
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if _value(env, name):
            yield Remark(
                name,
                "nccl-env-forced",
                "takes from NCCL the choice that it makes by size and topology",
                f"{name} is forced on {{nodes}}",
                expected="unset, other than for tests",
            )
    debug = _value(env, "NCCL_DEBUG")
    if debug.upper() in ("INFO", "TRACE"):
        yield Remark(
            "NCCL_DEBUG",
            "nccl-env-debug",
            "writes many lines per rank, good for a test and slow for a large job",
            "NCCL_DEBUG is left at a talkative level on {nodes}",
            expected="WARN",
            value="WARN",
        )


def _timeouts(env: Environment) -> Iterator[Remark]:
    text = _value(env, "NCCL_IB_TIMEOUT")
    number = param(text, 20)
    if text and not 0 < number < 32:
        # 4.096 us x 2^n; the field has 5 bits and 0 is "infinite" (InfiniBand specification, 9.9.2.1.1).
        yield Remark(
            "NCCL_IB_TIMEOUT",
            "nccl-env-timeout",
            f"means {number}, which waits for ever: a broken link becomes a hang",
            "NCCL_IB_TIMEOUT waits for ever on {nodes}",
            expected="1 to 31, 20 by default",
        )


def _transport(env: Environment, rdma: RdmaFacts | None) -> Iterator[Remark]:
    net = _value(env, "NCCL_NET")
    if net.lower() == "ib" and rdma is not None:
        off = param(_value(env, "NCCL_IB_DISABLE"), 0) != 0
        if not rdma.hcas or off:
            why = "NCCL_IB_DISABLE switches it off" if off and rdma.hcas else "there is no HCA"
            yield Remark(
                "NCCL_NET",
                "nccl-env-net",
                f"forces InfiniBand, and {why}: NCCL ends with an error",
                "NCCL_NET forces InfiniBand on {nodes}, which {has} none to use",
                Status.FAIL,
                "unset",
            )


def _leftovers(env: Environment) -> Iterator[Remark]:
    for name, setting in env.items():
        if setting.source is not Source.LOGIN:
            continue
        if name in RANKS:
            what = (
                "makes a plain start wait for an agent"
                if "AGENT" in name
                else ("makes a process join as another rank")
            )
            yield Remark(
                name,
                "env-stale-rank",
                f"is left over in the login session, and {what}",
                "logins on {nodes} carry rank variables of another job",
                expected="unset",
            )
        elif name.startswith("PET_"):
            yield Remark(
                name,
                "env-stale-torchrun",
                f"changes torchrun's default for --{name[4:].lower().replace('_', '-')} unseen",
                "logins on {nodes} carry defaults for torchrun",
                expected="unset",
            )


def _proxy(env: Environment) -> Iterator[Remark]:
    """A proxy matters to what speaks HTTP to its peers: the etcd rendezvous, and nothing in NCCL."""
    backend = _value(env, "PET_RDZV_BACKEND")
    proxies = [name for name in ("http_proxy", "HTTP_PROXY") if _value(env, name)]
    if backend.startswith("etcd") and proxies and not (env.get("no_proxy") or env.get("NO_PROXY")):
        yield Remark(
            proxies[0],
            "env-proxy",
            "is set without no_proxy, so the etcd rendezvous would go through the proxy",
            "logins on {nodes} send the rendezvous through a proxy",
            expected="no_proxy with the nodes",
            unset=False,
        )


def _finding(node: str, env: Environment, remark: Remark, everywhere: bool) -> Finding:
    setting = env[remark.name]
    origin = setting.origin
    shown = _show(remark.name, setting.value)
    return Finding(
        target=node,
        status=remark.status,
        summary=f"{shown} ({origin}) {remark.text}",
        observed=shown,
        expected=remark.expected or None,
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(Evidence(kind="file", where=node, what=origin, output=shown),),
        cause=CauseHint(
            # One cause per variable: two variables are two corrections.
            key=f"{remark.key}-{_word(remark.name)}" if "stale" not in remark.key else remark.key,
            title=remark.title,
            culprits=(node,),
            fixes=_correct(setting, remark, everywhere),
            verify=("nccl.env",),
        ),
    )


def _correct(setting: Setting, remark: Remark, everywhere: bool) -> tuple[Fix, ...]:
    if not remark.unset:
        return ()
    if remark.key == "env-stale-rank":
        return (change(setting, names=RANKS),)
    if remark.key == "nccl-env-renamed" and remark.value:
        line = f"unset {remark.name}; export {remark.value}=1"
        return (
            Fix(
                text="use the new name",
                commands=(Command(run_on="job", shell=line),),
                effect="next launch",
            ),
        )
    if remark.name in MUST_BE_EQUAL and remark.value and not everywhere:
        # Without it the node does what it does now, and what the others do.
        meant = Command(run_on="job", shell=f"export {remark.name}={quoted(remark.value)}")
        return (
            change(setting),
            Fix(text="if that was meant, set it for all nodes", commands=(meant,), effect="next launch"),
        )
    return (change(setting, remark.value),)


def _differences(effective: Mapping[str, Environment], no_hcas: bool) -> Iterator[tuple[str, Finding]]:
    """Variables whose effect is not the same on all nodes: the name, and a finding per odd node."""
    names = sorted({name for env in effective.values() for name in env if name in MUST_BE_EQUAL})
    for name in names:
        texts = {node: meaning(name, _value(env, name)) or UNSET for node, env in effective.items()}
        spread = majority(texts)
        sources = {env[name].source for env in effective.values() if name in env}
        if spread.equal or (name in RANKS and sources == {Source.LOGIN}):  # told as left over
            continue
        # A variable that one node sets and the others do not is that node's, also between two nodes.
        blamed = dict(spread.minority)
        if spread.tie:
            setters = {node: text for node, text in texts.items() if text != UNSET}
            blamed = setters if len(setters) < len(texts) else blamed
        status, why = _weight(name, sources, set(texts.values()), no_hcas)
        for node, text in blamed.items():
            setting = effective[node].get(name) or Setting(name, "", "nowhere", Source.JOB)
            value, origin = setting.value, setting.origin
            shown = _show(name, value) if name in effective[node] else f"{name} is unset"
            where = f" ({origin})" if name in effective[node] else ""
            others = [(v, [n for n in nodes if n != node]) for v, nodes in spread.groups.items() if v != text]
            sides = "; ".join(f"{v} on {listing(nodes, 3)}" for v, nodes in others[:3])
            yield (
                name,
                Finding(
                    target=node,
                    status=status,
                    summary=f"{shown}{where}, while it is {sides}: {why}",
                    observed=text,
                    expected=spread.value or "the same on all nodes",
                    expected_from=ExpectedFrom.PEERS,
                    evidence=(Evidence(kind="file", where=node, what=origin, output=shown),),
                    cause=CauseHint(
                        key=_differs(name),
                        title=title_text(name) + " differs on {nodes} from the other nodes",
                        culprits=(node,),
                        confidence=Confidence.LIKELY if spread.tie else Confidence.CERTAIN,
                        fixes=_equalise(setting, spread.value),
                        verify=("nccl.env",),
                        follows=("nccl.ib-hca",) if name in SWITCHES else (),
                    ),
                ),
            )


def _weight(name: str, sources: set[Source], meanings: set[str], no_hcas: bool) -> tuple[Status, str]:
    """How bad it is that a variable differs, and why."""
    if no_hcas and name.startswith("NCCL_IB_"):
        return Status.WARN, "of no effect without HCAs"
    if name in LAUNCHERS and sources == {Source.LOGIN} and len(meanings - {UNSET}) == 1:
        return Status.WARN, "launchers set it for the job, and a plain start would take this one"
    return Status.FAIL, "ranks must agree on it"


def _differs(name: str) -> str:
    return f"nccl-env-differs-{_word(name)}"


def _equalise(setting: Setting, usual: str | None) -> tuple[Fix, ...]:
    if usual is None or usual == UNSET:
        return (change(setting),)
    return (
        Fix(
            text="set it in the job's own environment, which wins on every node",
            commands=(Command(run_on="job", shell=f"export {setting.name}={quoted(usual)}"),),
            effect="next launch",
            persistent=False,
        ),
    )


def _value(env: Environment, name: str) -> str:
    return env[name].value if name in env else ""


def _show(name: str, value: str) -> str:
    """``NAME=value``, or only that it is set: a proxy's address may hold a password."""
    if not name.startswith(SHOWN):
        return f"{name} is set"
    return f"{name}={value[:120]}"


def _word(name: str) -> str:
    return name.lower().replace("_", "-")
