"""Group `firewall`: rules that can drop or reject, read with the tools that are there."""

import os
import re

from .. import runtime
from ..system import files, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_RULES = 50
MAX_LINE = 240
TOOL_S = 4.0
NESTED_CHAINS = 16  # as deep as the kernel lets them jump
_VERDICT = re.compile(r"\b(drop|reject)\b")
_DENIED = re.compile(r"permission denied|not permitted|must be root|need to be root|are you root", re.I)


def ruleset(kind: str, rules: "list[str]", error: "Optional[str]" = None) -> "dict[str, Any]":
    """Return facts.net.Ruleset."""
    return {
        "kind": kind,
        "active": bool(rules),
        "rules": [rule[:MAX_LINE] for rule in rules[:MAX_RULES]],
        "error": error,
    }


def nft_rules(text: str) -> "list[str]":
    """Return the drop and reject rules and policies of ``nft list ruleset``.

    As ``inet filter gate (hook input): tcp dport 22 drop``. A chain's hook is its own, or that of the chains
    that jump to it; several are joined with commas, and where none is known nothing is said.
    """
    # table inet filter {
    #   chain input {
    #     type filter hook input priority filter; policy drop;
    #     tcp dport 29500 drop comment "x"
    #     jump site
    found = []  # type: list[tuple[tuple[str, str], str]]
    hooks = {}  # type: dict[tuple[str, str], set[str]]
    jumps = []  # type: list[tuple[tuple[str, str], tuple[str, str]]]
    table = chain = ""
    for raw in text.splitlines():
        line = raw.strip()
        head = re.match(r"(table|chain|set|map)\s+(.*?)\s*\{", line)
        if head and head.group(1) == "table":
            table, chain = head.group(2), ""
        elif head and head.group(1) in ("chain", "map"):
            chain = head.group(2)
        elif head:
            chain = ""
        elif chain:
            here = (table, chain)
            # A word inside quotes (log prefix, comment) is no verdict.
            bare = re.sub(r'"[^"]*"', '""', line)
            hook = re.search(r"\bhook (\w+)", bare)
            if hook:
                hooks.setdefault(here, set()).add(hook.group(1))
                if re.search(r"\bpolicy drop\b", bare):
                    found.append((here, "policy drop"))
                continue
            if _VERDICT.search(bare):
                found.append((here, line))
            # A map's verdicts are those of the chains that look into it.
            jumps += [(here, (table, to)) for to in re.findall(r"(?:\b(?:jump|goto)\s+|@)([\w.-]+)", bare)]
    for _ in range(NESTED_CHAINS):
        for here, to in jumps:
            hooks.setdefault(to, set()).update(hooks.get(here, ()))
    lines = []
    for here, rule in found:
        known = ",".join(sorted(hooks.get(here, ())))
        lines.append("%s %s%s: %s" % (here[0], here[1], " (hook %s)" % known if known else "", rule))
    return lines


def iptables_rules(text: str) -> "list[str]":
    """Return drop and reject rules and policies of ``iptables-save`` as ``filter INPUT: …``."""
    # *filter
    # :INPUT DROP [0:0]
    # -A INPUT -p tcp -m tcp --dport 29500 -j REJECT --reject-with icmp-port-unreachable
    found = []
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
            continue
        policy = re.match(r":(\S+) (DROP|REJECT)\b", line)
        rule = re.match(r"-A (\S+) (.*)", line)
        if policy:
            found.append("%s %s: policy %s" % (table, policy.group(1), policy.group(2)))
        elif rule and re.search(r"-[jg] (DROP|REJECT|TARPIT)\b", rule.group(2)):
            found.append("%s %s: %s" % (table, rule.group(1), rule.group(2)))
    return found


def firewalld_rules(text: str) -> "list[str]":
    """Return what a zone lets in, from ``firewall-cmd --list-all``: all else is rejected."""
    # public (active)
    #   target: default
    #   services: ssh
    found = []
    zone = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            zone = line.split()[0]
            continue
        key, _, value = line.strip().partition(":")
        if key in ("target", "interfaces", "sources", "services", "ports", "protocols"):
            found.append("zone %s: %s: %s" % (zone, key, value.strip() or "none"))
        elif _VERDICT.search(line):
            found.append("zone %s: %s" % (zone, line.strip()))
    return found


def ufw_rules(text: str) -> "list[str]":
    """Return the defaults and the deny, reject and limit rules of ``ufw status verbose``."""
    if not re.search(r"^Status: active", text, re.M):
        return []
    return [
        re.sub(r"\s+", " ", line.strip())
        for line in text.splitlines()
        if line.startswith("Default:") or re.search(r"\b(DENY|REJECT|LIMIT)\b", line)
    ]


def ask(argv: "list[str]") -> "tuple[str, Optional[str]]":
    """Return (output, error) of a tool."""
    try:
        done = runtime.run_tool(argv, TOOL_S)
    except OSError as e:
        return "", "no permission" if isinstance(e, PermissionError) else runtime.explain(e)[1]
    text = " ".join((done.err + " " + done.out).split())
    if done.code is None:
        return done.out, "timed out after %g s" % TOOL_S
    if done.code != 0:
        if _DENIED.search(text):
            return "", "no permission"
        return done.out, text[:200] or "ended with %d" % done.code
    return done.out, None


def nftables() -> "Optional[dict[str, Any]]":
    tool = runtime.find_tool("nft")
    if tool is None:
        return None
    text, error = ask([tool, "list", "ruleset"])
    return ruleset("nftables", nft_rules(text), error)


def legacy_tables(root: str, name: str) -> "tuple[list[str], Optional[str]]":
    """Return the tables that the legacy modules hold, and an error.

    The file exists only while the module is loaded. Asking iptables without it would load the module and make
    empty tables, a change to the node.
    """
    try:
        return files.read_text(files.under(root, "/proc/net/" + name), 4096).split(), None
    except FileNotFoundError:
        return [], None
    except PermissionError:
        return [], "no permission"
    except OSError as e:
        return [], files.errno_name(e)


def iptables(root: str, kind: str, tables: str, has_nft: bool) -> "Optional[dict[str, Any]]":
    """Return the rules of iptables or ip6tables; those of its nft variant only where nft cannot tell."""
    loaded, error = legacy_tables(root, tables)
    plain = runtime.find_tool(kind + "-save")
    legacy = runtime.find_tool(kind + "-legacy-save")
    nft_variant = plain is not None and "nft" in os.path.basename(os.path.realpath(plain))
    if loaded:
        tool = legacy or plain
        if tool is None:
            return ruleset(kind, [], "tables %s, but no %s-save" % (" ".join(loaded), kind))
        text, error = ask([tool])
        return ruleset(kind, iptables_rules(text), error)
    if plain is not None and nft_variant and not has_nft:
        text, error = ask([plain])
        return ruleset(kind, iptables_rules(text), error)
    if error is not None and (legacy or (plain and not nft_variant)):
        return ruleset(kind, [], error)
    return None


def firewalld() -> "Optional[dict[str, Any]]":
    tool = runtime.find_tool("firewall-cmd")
    if tool is None or "firewalld" not in procs.running():
        return None
    text, error = ask([tool, "--state"])
    if error is not None:
        # "not running" is an answer, with status 252
        return ruleset("firewalld", [], None if "not running" in error else error)
    text, error = ask([tool, "--list-all"])
    return ruleset("firewalld", firewalld_rules(text), error)


def ufw(root: str) -> "Optional[dict[str, Any]]":
    tool = runtime.find_tool("ufw")
    if tool is None:
        return None
    conf = files.text_or_none(files.under(root, "/etc/ufw/ufw.conf")) or ""
    if not re.search(r"^ENABLED=yes", conf, re.M | re.I):
        return ruleset("ufw", [])
    text, error = ask([tool, "status", "verbose"])
    return ruleset("ufw", ufw_rules(text), error)


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.net.FirewallFacts."""
    nft = nftables()
    has_nft = nft is not None and nft["error"] is None
    found = [
        nft,
        iptables(root, "iptables", "ip_tables_names", has_nft),
        iptables(root, "ip6tables", "ip6_tables_names", has_nft),
        firewalld(),
        ufw(root),
    ]
    return {"rulesets": [entry for entry in found if entry is not None]}
