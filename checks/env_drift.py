"""Variables of sessions that differ between nodes, or were set to look for a fault."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._env import change
from netdoctor.checks._session import SET, VALUE, as_typed, differences
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import NetFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.facts.wanted import Wanted
from netdoctor.model import CONSTANT, PEERS, Cause, Finding, seen
from netdoctor.rules.leftovers import leftover
from netdoctor.rules.variables import Environment, effective_env

# Of more variables than these a node has another environment, and not as many faults.
MANY = 5
OTHER = Cause("env-other", "logins on {nodes} get another environment than on most nodes")


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
    expect: Wanted | None = None,
) -> Iterator[Finding]:
    """Variables of torch, CUDA, Python and the loader are the same on all nodes, none left from debugging.

    Looks at:
        NCCL_*, GLOO_*, TORCH*, CUDA_*, HF_*, OMP_*, PYTHON*, UCX_*, FI_*, LD_LIBRARY_PATH and LD_PRELOAD as
        a process of the job sees them: what the job sets (``--env-file``) wins over the login session. A
        node's own name and addresses in a value are no difference. What ranks have to agree on is judged by
        ``nccl.env``. Secrets never leave a node.

    Matters because:
        What a launcher starts by SSH inherits the session of each node. A module that is loaded on some of
        them brings other libraries and other defaults there. A variable that once served to find a fault
        (CUDA_LAUNCH_BLOCKING=1) makes every job slower, without a word.

    Fix:
        Set it for the job, the same everywhere, or take it out of the node's start-up files.
    """
    effective = {node: effective_env(env, job) for node, env in envs.items()}
    odd: dict[str, list[Finding]] = {node: [] for node in envs}
    yield from as_typed(effective, expect)
    for finding in differences(effective, hosts or {}, nets or {}, expect):
        odd[finding.target].append(finding)
    for node, env in effective.items():
        yield from _left_over(node, env)
    for node, findings in odd.items():
        if len(findings) <= MANY:
            yield from findings
            continue
        names = listing([finding.summary.partition(" ")[0] for finding in findings], 6)
        yield OTHER.warn(
            f"{len(findings)} variables are others here than on most nodes: {names}",
            at=node,
            observed=names,
            expected=PEERS("as on most nodes"),
            seen=[one for finding in findings[:4] for one in finding.evidence],
        )


def _left_over(node: str, env: Environment) -> Iterator[Finding]:
    for name, setting in env.items():
        if found := leftover(name, setting.value):
            shown = f"{name}={setting.value[:40]}"
            cause = Cause(
                f"env-left-{name.lower().replace('_', '-')}",
                name + " is left over from debugging on {nodes}",
                see=found.source,
            )
            yield cause.warn(
                f"{shown} ({setting.origin}) {found.cost}",
                at=node,
                observed=shown,
                expected="unset, but to look for a fault",
                expected_from=CONSTANT,
                seen=seen(setting.origin, shown, "file"),
                fixes=change(setting),
            )
