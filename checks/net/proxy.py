"""Proxy variables that take what nodes say to each other over HTTP."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.addresses import parse
from netdoctor.checks._shared.text import listing
from netdoctor.facts.ray import RayFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import DERIVED, LIKELY, Cause, Finding, in_job, seen, skip
from netdoctor.rules.proxies import is_bypassed, proxy
from netdoctor.rules.variables import effective_env, values

CAPTURED = Cause("proxy-captures", "Proxy variables on {nodes} also catch HTTP to other nodes", LIKELY)
# What speaks HTTP from node to node; torch's store, gloo and NCCL never ask for a proxy.
SPEAKERS = {"ray", "vllm", "sglang", "verl"}
# More do not fit well into a variable: there no_proxy names a domain, or a network where clients know those.
MOST = 64


@check(
    required=False, source="https://docs.python.org/3/library/urllib.request.html#urllib.request.getproxies"
)
def net_proxy(
    envs: Mapping[str, EnvFacts], job: Job, rays: Mapping[str, RayFacts] | None
) -> Iterator[Finding]:
    """HTTP between nodes does not go through a proxy.

    Looks at:
        http_proxy, all_proxy and no_proxy of the job's environment and the login session, as Python's
        clients read them, for the addresses at which nodes dial each other. Only if Ray runs, or the job
        is launched by Ray, uses etcd, or asks for Ray, vLLM, SGLang or verl.

    Matters because:
        Requests to another node's server go to the proxy, which does not know that node: 502, 503, or no
        answer. torch's store, gloo and NCCL use no proxy, so nothing else shows it.

    Fix:
        Name the nodes in no_proxy, and in NO_PROXY for programs that read that, before Ray or a server
        starts.
    """
    speaks_http = SPEAKERS.intersection(job.packages) or job.launcher == "ray" or rays
    if not speaks_http and not job.env.get("PET_RDZV_BACKEND", "").startswith("etcd"):
        yield skip("no known part of the job uses HTTP between nodes")
        return
    peers = {node: address for node, address in job.data_addresses.items() if parse(address)}
    names = ",".join(dict.fromkeys(peers.values()))
    add = f'export no_proxy="${{no_proxy:+$no_proxy,}}{names}"; export NO_PROXY="$no_proxy"'
    # Most nodes say the same: what is kept from the proxy is worked out once for each way to say it.
    known: dict[str, list[str]] = {}
    for node, facts in envs.items():
        env = values(effective_env(facts, job))
        through, no_proxy = proxy(env), env.get("no_proxy", env.get("NO_PROXY", ""))
        if through and no_proxy not in known:
            known[no_proxy] = [one for one in peers.values() if not is_bypassed(one, env)]
        caught = known[no_proxy][:MOST] if through else []
        if caught and caught != [peers.get(node)]:
            yield CAPTURED.warn(
                f"HTTP to {listing(caught)} goes to the proxy {through}",
                at=node,
                observed=f"no_proxy={no_proxy}",
                expected=DERIVED("the nodes' addresses in no_proxy"),
                seen=seen("env | grep -i _proxy", f"http_proxy={through}", "command"),
                fixes=in_job("name the nodes in no_proxy", add if len(peers) <= MOST else ""),
            )
