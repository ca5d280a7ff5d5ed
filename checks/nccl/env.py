"""Variables that do not mean what they look like, differ between nodes, or cripple the job."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from netdoctor.check import check
from netdoctor.checks._shared.env import change, export, unread
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.text import listing
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import CONSTANT, PEERS, Cause, Finding, Fix, in_job, seen, unknown
from netdoctor.rules import variables as rules
from netdoctor.rules.variables import Environment, Setting, Source, effective_env, param
from netdoctor.rules.versions import Version, at_least, nccl_version

UNSET = "unset"
# Values that may be shown: a proxy's address may hold a password.
PRINTABLE = ("NCCL_", "GLOO_", "TORCH_", "TORCHELASTIC_", "PET_", "MASTER_", "WORLD_SIZE", "RANK", "LOCAL_")
# Those that nccl.ib-hca speaks of, and those that launchers set for each process.
SWITCHES = ("NCCL_IB_DISABLE", "NCCL_NET")
LAUNCHERS = ("MASTER_ADDR", "MASTER_PORT")
FAMILIES = dict.fromkeys(("4", "INET", "IPV4"), "AF_INET") | dict.fromkeys(("6", "INET6", "IPV6"), "AF_INET6")
CRIPPLING = {
    "NCCL_P2P_DISABLE": "stops direct traffic over NVLink and PCIe between GPUs of a node",
    "NCCL_SHM_DISABLE": "stops traffic over shared memory between ranks of a node",
    "NCCL_CHECKS_DISABLE": "switches off NCCL's checks of arguments",
}

# NAME is the variable. Two variables are two corrections, and so two causes: the key gets its name too.
NUMBER = Cause("nccl-env-number", "NAME has another effect on {nodes} than it seems")
LIST = Cause("nccl-env-list", "NAME has another effect on {nodes} than it seems")
WORD = Cause("nccl-env-word", "NAME is ignored on {nodes}, because NCCL does not know its value")
RENAMED = Cause("nccl-env-renamed", "variables with old names are set on {nodes}")
SLOW = Cause("nccl-env-slow", "NAME slows down the job on {nodes}")
FORCED = Cause("nccl-env-forced", "NAME is forced on {nodes}")
TALKATIVE = Cause("nccl-env-debug", "NAME is set to a verbose level on {nodes}")
ENDLESS = Cause("nccl-env-timeout", "NAME sets an endless timeout on {nodes}")
REFUSED = Cause(
    "nccl-env-refused", "NAME stops NCCL on {nodes}: its value has a word that NCCL does not know"
)
NO_HCA = Cause("nccl-env-net", "NAME forces InfiniBand on {nodes}, which {has} none to use")
PROXY = Cause("env-proxy", "logins on {nodes} send the rendezvous through a proxy")
DIFFERS = Cause("nccl-env-differs", "NAME differs on {nodes} from the other nodes")
# What is left over in a login session goes in one piece.
STALE_RANK = Cause("env-stale-rank", "logins on {nodes} carry rank variables of another job")
STALE_TORCHRUN = Cause("env-stale-torchrun", "logins on {nodes} carry defaults for torchrun")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something odd about one variable on one node."""

    cause: Cause
    setting: Setting
    text: str  # follows the variable and its origin
    expected: str | None = None
    value: str | None = None  # what to write instead; None takes the variable out
    fixes: tuple[Fix, ...] | None = None  # where neither is the cure


@check(source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html")
def nccl_env(
    envs: Mapping[str, EnvFacts],
    rdma: Mapping[str, RdmaFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL's and torch's variables have the effect that they seem to have, and agree between nodes.

    Looks at:
        Variables of the job and the login session, ~/.nccl.conf (or NCCL_CONF_FILE) and /etc/nccl.conf,
        in NCCL's order: the environment wins over the files. Values are shown for NCCL_*, GLOO_*, torch's
        and the launcher's variables only.

    Matters because:
        NCCL reads a value that is not a number as 0 (NCCL_IB_DISABLE=true leaves InfiniBand on; since
        2.32.3 as the default). It reads 010 as 8, and ignores a word in the wrong case. It prints no
        message for any of these. Some variables must be equal on all ranks, and nothing compares them.
        Rank variables left in a login session make the next launch join with the wrong rank.

    Fix:
        Correct or unset the variable at the place that the finding names.
    """
    versions = {node: nccl_version((softwares or {}).get(node)) for node in envs}
    effective = {node: effective_env(env, job, versions[node]) for node, env in envs.items()}
    no_hcas = envs.keys() <= (rdma or {}).keys() and not any(facts.hcas for facts in (rdma or {}).values())
    differences = list(_differences(effective, no_hcas))
    differ = {(one.target, one.cause.key) for one in differences if one.cause}
    yield from differences

    @cache
    def equal(name: str) -> bool:
        return len({_value(env, name) for env in effective.values()}) == 1

    for node, env in effective.items():
        hcas = (rdma or {}).get(node)
        for remark in _remarks(env, hcas, len(envs), versions[node]):
            name = remark.setting.name
            yield _finding(node, remark, equal(name), (node, _of_variable(DIFFERS, name).key) in differ)
        if gap := unread(envs[node]):
            yield unknown(node, gap)
        elif _value(env, "NCCL_NET").lower() == "ib" and hcas is None:
            yield unknown(node, f"{env['NCCL_NET']} forces InfiniBand, and its HCAs could not be read")


def _value(env: Environment, name: str) -> str:
    return env[name].value if name in env else ""


def _settings(env: Environment, *names: str) -> list[Setting]:
    """Those of these variables that have a value."""
    return [env[name] for name in names if _value(env, name)]


def _of_variable(cause: Cause, name: str) -> Cause:
    """The cause of one variable."""
    if cause in (STALE_RANK, STALE_TORCHRUN):
        return cause
    key = f"{cause.key}-{name.lower().replace('_', '-')}"
    return cause.but(key=key, title=cause.title.replace("NAME", name))


def _remarks(env: Environment, rdma: RdmaFacts | None, count: int, nccl: Version | None) -> Iterator[Remark]:
    for name, setting in env.items():
        value = setting.value
        if name in rules.INTEGERS and value and not rules.is_plain_number(value):
            yield _number(setting, nccl)
        if name in rules.WORDS and value and not rules.is_known_word(name, value):
            yield _word(setting)
        if name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"):
            for text, clean in _list(name, value):
                yield Remark(LIST, setting, text, clean, clean)
        new = rules.RENAMED.get(name)
        if new and new not in env:
            fix = in_job("use the new name", f"unset {name}; {export(new, value)}", persistent=True)
            yield Remark(RENAMED, setting, f"is called {new} since torch 2.2", fixes=(fix,))
    yield from _costly(env, nccl)
    yield from _transport(env, rdma)
    for setting in env.values():
        if setting.source is Source.LOGIN:
            yield from _leftover(setting)
    if count > 1:
        yield from _proxy(env)


def _number(setting: Setting, version: Version | None) -> Remark:
    value, number = setting.value, param(setting.value, 0)
    word = value.strip().lower()
    if version and at_least(version, rules.NO_DIGITS_SINCE) and not re.match(r"\s*[+-]?\d", value):
        return Remark(NUMBER, setting, "is ignored, because NCCL reads a number", "a number")
    if word in ("true", "yes", "on", "enable", "enabled"):
        expected = "a number: 0 as it is now, 1 if that is meant"
        return Remark(NUMBER, setting, "means 0, because NCCL reads a number", expected, "1")
    if word in ("false", "no", "off"):
        return Remark(NUMBER, setting, "means 0 only because it is not a number", value="0")
    if re.fullmatch(r"[+-]?0[0-9]+", value):
        intended = value.lstrip("+-0") or "0"
        return Remark(NUMBER, setting, f"means {number}, because of the leading 0", value=intended)
    return Remark(NUMBER, setting, f"means {number}: the text after the number is ignored")


def _word(setting: Setting) -> Remark:
    words = rules.WORDS[setting.name]
    intended = setting.value.upper()
    intended = FAMILIES.get(intended, intended)
    known = listing(words, 11)
    text = f"is ignored: NCCL knows {known}, with that case"
    return Remark(WORD, setting, text, *((intended, intended) if intended in words else (known,)))


def _list(name: str, value: str) -> Iterator[tuple[str, str | None]]:
    """What is odd about a list, and the list that was meant."""
    body = value.lstrip("^=")
    items = body.split(",")
    trimmed = [item.strip() for item in items]
    if trimmed != items:
        clean = value[: len(value) - len(body)] + ",".join(trimmed)
        yield "has spaces, which NCCL takes as part of the names: those entries match nothing", clean
    if any(item.startswith(("^", "=")) for item in trimmed[1:]):
        spec = rules.parse_filter(value)
        head = ("^" if spec.exclude else "") + ("=" if spec.exact else "")
        clean = head + ",".join(item.lstrip("^=") for item in trimmed)
        yield "repeats ^ or =, which count at the start of the whole list only", clean
    if value.startswith("=^"):
        yield "looks for a name that begins with ^: to exclude exact names, write ^=", "^=" + body
    if name == "NCCL_SOCKET_IFNAME" and len(value) == 1:
        yield "is too short to count, and is ignored", None


def _costly(env: Environment, nccl: Version | None) -> Iterator[Remark]:
    for setting in _settings(env, *CRIPPLING):
        if param(setting.value, 0) != 0:
            yield Remark(SLOW, setting, CRIPPLING[setting.name], "unset")
    for setting in _settings(env, *rules.CHOICES):
        text = "replaces NCCL's own choice by size and topology"
        if odd := rules.unknown_choice(setting.name, setting.value, nccl):
            clean = re.sub(r"\s", "", setting.value)
            value = None if rules.unknown_choice(setting.name, clean, nccl) else clean
            text = f"ends the job: NCCL does not know {odd!r}, only {listing(rules.CHOICES[setting.name], 7)}"
            yield Remark(REFUSED, setting, text, value or UNSET, value)
        # A ring of cables carries no trees, and this variable is for such (rdma.cabling).
        elif setting.value.lower() != "ring" or not rules.goes_by_subnet(rules.values(env), nccl):
            yield Remark(FORCED, setting, text, "unset, other than for tests")
    for setting in _settings(env, "NCCL_DEBUG"):
        if setting.value.upper() in ("INFO", "TRACE"):
            text = "writes many lines per rank: useful for a test, slow for a large job"
            yield Remark(TALKATIVE, setting, text, "WARN", "WARN")
    for setting in _settings(env, "NCCL_IB_TIMEOUT"):
        # 4.096 us x 2^n; the field has 5 bits and 0 is "infinite" (InfiniBand specification, 9.9.2.1.1).
        number = param(setting.value, 20)
        if not 0 < number < 32:
            text = f"means {number}, an endless timeout: with a broken link the job hangs"
            yield Remark(ENDLESS, setting, text, "1 to 31, 20 by default")


def _transport(env: Environment, rdma: RdmaFacts | None) -> Iterator[Remark]:
    off = param(_value(env, "NCCL_IB_DISABLE"), 0) != 0
    for setting in _settings(env, "NCCL_NET"):
        if setting.value.lower() == "ib" and rdma is not None and (off or not rdma.hcas):
            why = "NCCL_IB_DISABLE switches it off" if rdma.hcas else "there is no HCA"
            yield Remark(NO_HCA, setting, f"forces InfiniBand, and {why}: NCCL ends with an error", "unset")


def _leftover(setting: Setting) -> Iterator[Remark]:
    name = setting.name
    if name in rules.RANKS:
        as_another = "makes a process join with a wrong rank"
        what = "makes a plain start wait for an agent" if "AGENT" in name else as_another
        text = f"is left over in the login session, and {what}"
        yield Remark(STALE_RANK, setting, text, "unset", fixes=change(setting, names=rules.RANKS))
    elif name.startswith("PET_"):
        option = name[4:].lower().replace("_", "-")
        yield Remark(STALE_TORCHRUN, setting, f"silently changes torchrun's default for --{option}", "unset")


def _proxy(env: Environment) -> Iterator[Remark]:
    """A proxy matters to what speaks HTTP to its peers: the etcd rendezvous, and nothing in NCCL."""
    proxies = _settings(env, "http_proxy", "HTTP_PROXY")
    if _value(env, "PET_RDZV_BACKEND").startswith("etcd") and not {"no_proxy", "NO_PROXY"} & env.keys():
        for setting in proxies[:1]:
            text = "is set without no_proxy, so the etcd rendezvous would go through the proxy"
            yield Remark(PROXY, setting, text, "no_proxy with the nodes", fixes=())


def _finding(node: str, remark: Remark, equal: bool, differs: bool) -> Finding:
    setting, printed = remark.setting, _show(remark.setting)
    cause = _of_variable(remark.cause, setting.name)
    if differs:  # one variable of one node is one thing to correct, whatever is to be said about it
        cause = cause.but(key=_of_variable(DIFFERS, setting.name).key)
    say = cause.fail if remark.cause in (NO_HCA, REFUSED) else cause.warn
    return say(
        f"{printed} ({setting.origin}) {remark.text}",
        at=node,
        observed=printed,
        expected=None if differs else remark.expected,
        expected_from=CONSTANT,
        seen=seen(setting.origin, printed, "file"),
        fixes=_cure(remark, equal),
    )


def _cure(remark: Remark, equal: bool) -> tuple[Fix, ...]:
    setting = remark.setting
    if remark.fixes is not None:
        return remark.fixes
    if setting.name in rules.MUST_BE_EQUAL and remark.value and not equal:
        # Without it the node does what it does now, and what the others do.
        line = export(setting.name, remark.value)
        for_all = in_job("if that is intended, set it on all nodes", line, persistent=True)
        return (*change(setting), for_all)
    return change(setting, remark.value)


def _differences(effective: Mapping[str, Environment], no_hcas: bool) -> Iterator[Finding]:
    """Variables whose effect is not the same on all nodes, a finding per odd node."""
    for name in sorted({name for env in effective.values() for name in env} & rules.MUST_BE_EQUAL):
        texts = {node: rules.meaning(name, _value(env, name)) or UNSET for node, env in effective.items()}
        spread = majority(texts)
        left_over = {env[name].source for env in effective.values() if name in env} == {Source.LOGIN}
        if spread.equal or (name in rules.RANKS and left_over):  # told as left over
            continue
        # A variable that one node sets and the others do not is that node's, also between two nodes.
        blamed = dict(spread.minority)
        setters = {node: text for node, text in texts.items() if text != UNSET}
        if spread.is_split and len(setters) < len(texts):
            blamed = setters
        cause = _of_variable(DIFFERS, name).but(
            confidence=spread.confidence, follows=("nccl.ib-hca",) if name in SWITCHES else ()
        )
        say, why = cause.fail, "ranks must agree on it"
        if no_hcas and name.startswith("NCCL_IB_"):
            say, why = cause.warn, "of no effect without HCAs"
        elif name in LAUNCHERS and left_over and len(set(setters.values())) == 1:
            say, why = (
                cause.warn,
                "launchers set it for the job, but a start without a launcher would use this one",
            )
        sides = {value: f"{value} on {listing(nodes, 3)}" for value, nodes in spread.groups.items()}
        equalise = "set it in the job's own environment, which wins on every node"
        for node, text in blamed.items():
            setting = effective[node].get(name, Setting(name, "", "nowhere", Source.JOB))
            is_set = name in effective[node]
            printed = _show(setting) if is_set else f"{name} is unset"
            others = "; ".join([side for value, side in sides.items() if value != text][:3])
            common = spread.value if spread.value != UNSET else None
            yield say(
                f"{printed}{f' ({setting.origin})' if is_set else ''}, while it is {others}: {why}",
                at=node,
                observed=text,
                expected=PEERS(spread.value or "the same on all nodes"),
                seen=seen(setting.origin, printed, "file"),
                fixes=in_job(equalise, export(name, common)) if common is not None else change(setting),
            )


def _show(setting: Setting) -> str:
    """``NAME=value``, or only that it is set."""
    if not setting.name.startswith(PRINTABLE):
        return f"{setting.name} is set"
    return f"{setting.name}={setting.value[:120]}"
