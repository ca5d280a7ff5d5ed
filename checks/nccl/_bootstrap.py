"""A node as NCCL's bootstrap sees it, and what NCCL chooses there: its own answer, else a prediction."""

from dataclasses import dataclass
from typing import Any

from netdoctor.checks._shared.text import listing
from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.software import EnvFacts, Job, NcclAnswer
from netdoctor.model import DERIVED, Evidence, seen
from netdoctor.rules.addresses import rows_of
from netdoctor.rules.nccl import RUNNING_SINCE, Choice, choose, corrected, device_of
from netdoctor.rules.variables import Environment, effective_env, values
from netdoctor.rules.versions import Version, at_least, parse_version

VARIABLE = "NCCL_SOCKET_IFNAME"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A node as NCCL's bootstrap sees it, and the address that it takes there."""

    node: str
    net: NetFacts
    env: Environment
    version: Version | None
    choice: Choice  # NCCL's own where it was asked
    predicted: Choice  # by netdoctor's rules
    answer: NcclAnswer | None

    def __str__(self) -> str:
        row = self.choice.row
        return f"{row.ifname} {row.address}" if row else "no interface"

    @property
    def setting(self) -> str:
        return str(self.env.get(VARIABLE, f"{VARIABLE} is not set"))

    @property
    def summary(self) -> str:
        """The text of a pass."""
        row = self.choice.row
        what = f"{row.ifname} ({row.address})" if row and self.choice.by_nccl else str(self)
        return f"{self.uses} {what}{self.remark}"

    @property
    def uses(self) -> str:
        return "NCCL itself chose" if self.choice.by_nccl else "NCCL would use"

    @property
    def remark(self) -> str:
        """How the choice is known, as far as that is worth a word."""
        row = self.predicted.row
        if self.choice.by_nccl:
            ours = f"{row.ifname} ({row.address})" if row else "nothing"
            differ = f"; netdoctor's rules expected {ours}: please report this"
            return differ if self.choice.row != row else ""
        newest = "" if self.version else ": NCCL's release is not known, so the newest rules are used"
        return f" (predicted{newest})"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        rows = [f"{row.ifname} {row.address}/{row.prefix_len}" for row in rows_of(self.net)]
        origin = self.env[VARIABLE].origin if VARIABLE in self.env else "environment"
        facts = [seen(origin, self.setting, "file"), seen("ip address", listing(rows, 8), "command")]
        if self.answer and self.choice.by_nccl:
            text = self.answer.error or self.answer.address or ""
            facts.append(
                seen(self.answer.library, f"when called, NCCL {self.answer.version} says: {text}", "file")
            )
        return tuple(facts)

    def details(self, **more: Any) -> dict[str, Any]:
        """The fields of a finding about this node, unless `more` has others."""
        expected = DERIVED("an address that the other nodes can reach")
        return {"at": self.node, "observed": str(self), "expected": expected, "seen": self.evidence, **more}


def bootstrap(
    node: str,
    net: NetFacts,
    login: EnvFacts | None,
    job: Job,
    version: Version | None,
    resolve: ResolveFacts | None,
    answer: NcclAnswer | None,
) -> Bootstrap:
    """NCCL's choice on a node from its facts, those that there are."""
    version = parse_version(answer.version) if answer else version
    env = effective_env(login, job, version)
    predicted = choose(net, values(env), version, resolve)
    choice = corrected(predicted, answer, net, values(env))
    return Bootstrap(node, net, env, version, choice, predicted, answer)


def undetermined(one: Bootstrap) -> str:
    """What the choice depends on and nobody knows; empty where it would be the same either way."""
    row = one.choice.row
    if one.choice.untold:
        return one.choice.untold
    by_rules = one.choice.rule != "NCCL_COMM_ID"
    if by_rules and one.version is None and choose(one.net, values(one.env), (0,)).row != row:
        return "releases of NCCL differ there, and this one is not known"
    silent = by_rules and row is not None and row.running is None and at_least(one.version, RUNNING_SINCE)
    if silent and row and all(dev.name != device_of(row.ifname) for dev in one.net.netdevs):
        return f"whether {row.ifname} is running could not be read"
    return ""
