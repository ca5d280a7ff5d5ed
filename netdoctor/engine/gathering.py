"""What is known of each node by itself: from the command line, from its first answer, or why it is not."""

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from netdoctor.check import Profile
from netdoctor.facts.bandwidth import Baseline
from netdoctor.facts.base import FACT_TYPES, Missing, Why
from netdoctor.facts.cabling import CabledPort
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import MEET, Node
from netdoctor.facts.paths import Paths
from netdoctor.facts.places import CACHES
from netdoctor.facts.software import PYTHON_PLACES, Job, SoftwareFacts, in_all
from netdoctor.inventory import Target
from netdoctor.inventory.names import is_python_path
from netdoctor.measure.common import peers
from netdoctor.memo import keeping
from netdoctor.rules.nccl import comm_id_host
from netdoctor.rules.paths import Known, data_addresses, paths, release
from netdoctor.rules.switches import job_ports, leaves, ports_of_nodes
from netdoctor.rules.variables import effective_env, values
from netdoctor.store import Store, decoder, group_type
from netdoctor.transport.base import Reply

# For an interpreter: one that has torch, looked for on the node.
AUTO = "auto"
# What answers may hold before they become facts: those of 3,000 nodes, usually.
UNREAD_BYTES = 64 << 20


def put_control_facts(
    store: Store,
    targets: Sequence[Target],
    job: Job,
    baseline: Baseline | None,
    expected: Expectations | None = None,
) -> None:
    """What the user said: the nodes as listed, the job, an earlier report's figures, what is expected."""
    for target in targets:
        node = Node(
            id=target.id,
            host=target.host,
            order=target.order,
            slots=target.slots,
            gpus=target.gpus,
            leaf=target.leaf,
            rail=target.rail,
            line=target.line,
            source=target.source,
        )
        store.put("node", target.id, node)
    store.cluster["job"] = job
    store.cluster["wanted"] = expected or Missing(Why.NOT_COLLECTED, "no --expect was given")
    store.cluster["baseline"] = baseline or Missing(Why.NOT_COLLECTED, "no --baseline was given")


def put_untried(store: Store, groups: Collection[str], nodes: Sequence[str]) -> None:
    """Say of everything that is measured between nodes that nobody tried it."""
    untried = Missing(Why.NOT_COLLECTED, "no node met another")
    for info in FACT_TYPES.values():
        if info.group in groups and info.origin == "measure" and info.scope == "cluster":
            store.cluster[info.group] = untried
        elif info.group in groups and info.origin == "measure":
            for node in nodes:
                store.put(info.group, node, untried)


def first_groups(
    needed: Collection[str], targets: Sequence[Target], job: Job, profile: Profile
) -> dict[str, dict[str, Any]]:
    """The passive facts that each node is asked for right after login, with their arguments, by group.

    Of names to look up those that all nodes are asked for alike; `lookups` has each node's.
    """
    conf_file = job.env.get("NCCL_CONF_FILE")
    arguments: dict[str, dict[str, Any]] = {
        "env": {} if conf_file is None else {"conf_file": conf_file},
        "launch": {"launcher": job.launcher, "image": job.image},
        "limits": {"tmpdir": job.env.get("TMPDIR")},
        "places": {
            "paths": list(job.paths),
            "env": {name: job.env[name] for name in CACHES if name in job.env},
            "tmpdir": job.env.get("TMPDIR"),
        },
        "nccl_answer": {"ask": profile.includes(Profile.LAUNCH), "env": dict(job.env)},
        "resolve": {"names": _job_names(job)},
        "port_holder": {"port": job.master_port},
        "python_start": {"env": python_env(job)},
        "software": software_args(job),
    }
    collected = {info.group for info in FACT_TYPES.values() if info.origin == "agent"}
    return {group: arguments.get(group, {}) for group in sorted(collected & set(needed))}


def software_args(job: Job) -> dict[str, Any]:
    """What the collector of `software` is told: packages to look for, environments that the job may be in."""
    return {
        "packages": list(job.packages),
        "extras": extras(job),
        "env": python_env(job),
        "prefixes": [path for name in PYTHON_PLACES if (path := job.env.get(name))],
    }


def python_env(job: Job) -> dict[str, str]:
    """Of the job's variables those that decide how an interpreter starts, and what it finds."""
    return {name: value for name, value in job.env.items() if name.startswith(("PYTHON", "LD_"))}


def extras(job: Job) -> dict[str, list[str]]:
    """The extras that the job asks for, by distribution: of lines that are meant for every node."""
    found: dict[str, list[str]] = {}
    for one in job.requested:
        if one.extras and not one.marker and not one.only_if_there:
            found[one.name] = sorted({*found.get(one.name, ()), *one.extras})
    return found


def _job_names(job: Job) -> list[str]:
    names = [job.master_addr or "", comm_id_host(job.env.get("NCCL_COMM_ID", "")) or ""]
    return list(dict.fromkeys(name for name in names if name and not _is_address(name)))


def lookups(targets: Sequence[Target], job: Job, profile: Profile) -> dict[str, list[str]]:
    """The names that each node is asked to look up; one list where all are asked the same.

    Its own, rank 0's and those of the peers whose ports it dials: of all nodes, or of a sample in which its
    neighbours are and every name is asked for by equally many, so that a site's DNS is asked by the nodes and
    not by their square.
    """
    common, nodes = _job_names(job), [target.id for target in targets]
    if not profile.includes(Profile.LAUNCH):
        return dict.fromkeys(nodes, common)
    hosts = ["" if _is_address(target.host) else target.host for target in targets]
    position = {node: i for i, node in enumerate(nodes)}
    master = {position[node] for node in (job.master_node,) if node in position}
    shared: dict[tuple[str, ...], list[str]] = {}
    found = {}
    for node, plan in peers(nodes).items():
        selected = sorted({position[node], *map(position.__getitem__, plan), *master})
        names = dict.fromkeys([*filter(None, (hosts[i] for i in selected)), *common])
        found[node] = shared.setdefault(tuple(names), list(names))
    return found


class Answers:
    """Nodes' first answers, which become facts when there are many, or no more.

    Beside the logins, which take all cores, to read them takes twice as long.
    groups: as of first_groups().
    """

    def __init__(self, store: Store, groups: Mapping[str, Mapping[str, Any]]) -> None:
        self._store = store
        self._groups = groups
        self._unread: list[Reply] = []
        self._bytes = 0

    def add(self, reply: Reply) -> None:
        self._unread.append(reply)
        facts = reply.result.values() if isinstance(reply.result, dict) else ()
        raws = [one for one in facts if isinstance(one, msgspec.Raw)]
        self._bytes += sum(memoryview(one).nbytes for one in raws)
        # Plain data takes more room than the facts that it becomes.
        if self._bytes > UNREAD_BYTES or len(raws) < len(facts):
            self.read()

    def read(self) -> None:
        """Store a fact or a reason for each group that the nodes were asked for."""
        for group, arguments in self._groups.items():
            fact, believed = decoder(group), _believer(group, arguments)
            for reply in self._unread:
                if reply.missing is not None:
                    found = reply.missing
                elif isinstance(reply.result, dict) and group in reply.result:
                    found = fact(reply.result[group])
                    if isinstance(found, Missing):
                        found = believed(found)
                else:
                    found = Missing(Why.UNPARSABLE, f"{group}: not in the node's answer")
                self._store.put(group, reply.node, found)
        # Last: who interrupts this has it begun again.
        self._unread.clear()
        self._bytes = 0


def _believer(group: str, arguments: Mapping[str, Any]) -> Callable[[Missing], Missing]:
    """What is made of a node's word that there is nothing to look at: it counts only of what a machine may be
    without, and not of what was asked for by name."""
    cls = group_type(group)

    def believed(missing: Missing) -> Missing:
        if cls is None or not missing.why.is_skip:
            return missing
        if FACT_TYPES[cls].named and any(arguments.values()):
            return Missing(Why.NOT_EXAMINED, f"the node did not report it: {missing.detail or missing.why}")
        if FACT_TYPES[cls].absent:
            return missing
        why = missing.detail or missing.why.replace("_", " ")
        return Missing(Why.FAILED, f"{group}: the node did not report it: {why}")

    return believed


@keeping()
def addresses(store: Store, nodes: Sequence[str], job: Job) -> Mapping[str, str]:
    """Where peers dial each node, as far as that can be worked out."""
    nets = store.present("net", nodes)
    envs = {n: values(effective_env(env, job)) for n, env in store.present("env", nodes).items()}
    logins = {n: host.ssh_server_address for n, host in store.present("host", nodes).items()}
    # Where nobody logs in: the address that the engine itself has for the node.
    sessions = store.present("session", nodes).items()
    logins |= {n: session.address for n, session in sessions if session.transport in ("slurm", "ray", MEET)}
    return data_addresses(nets, envs, logins) if nets else {}


@keeping()
def all_paths(store: Store, nodes: Sequence[str], job: Job) -> Paths:
    """The paths of the job, whose data addresses are known, from what the nodes have answered."""
    kinds = {
        "resolve": "resolve",
        "gpu": "gpu",
        "rdma": "rdma",
        "software": "software",
        "answer": "nccl_answer",
    }
    found = {name: store.present(group, nodes) for name, group in kinds.items()}
    logins = store.present("env", nodes)
    known = {}
    for node, net in store.present("net", nodes).items():
        more = {name: by_node.get(node) for name, by_node in found.items()}
        env = effective_env(logins.get(node), job, release(more["software"], more["answer"]))
        known[node] = Known(net=net, env=env, **more)
    return paths(known, job)


@keeping()
def put_leaves(store: Store, nodes: Sequence[str], job: Job) -> None:
    """Where the hosts file names no leaf: that of each node whose ports say what they are connected to."""
    listed = {node: one for node, one in store.present("node", nodes).items() if isinstance(one, Node)}
    if any(one.leaf for one in listed.values()):
        return
    by_group = {group: store.present(group, nodes) for group in ("rdma", "net", "env")}

    def pick(node: str, known: Mapping[str, CabledPort]) -> dict[str, CabledPort]:
        rdma, net, env = (found.get(node) for found in by_group.values())
        ib_hca = values(effective_env(env, job)).get("NCCL_IB_HCA")
        return job_ports(known, rdma, net, ib_hca=ib_hca, address=job.data_addresses.get(node))

    leaf_of = leaves(ports_of_nodes(store.present("cabling", nodes), listed, pick))
    sizes = Counter(leaf_of.values())
    for node, leaf in leaf_of.items():
        if sizes[leaf] > 1:  # else it is nobody's but the node's, such as a hypervisor's
            store.put("node", node, replace(listed[node], leaf=leaf))


def fill_gaps(store: Store, groups: Collection[str], nodes: Sequence[str], ended_by: str) -> None:
    """Give every wanted fact that did not arrive its reason. ended_by: as of Outcome."""
    if ended_by == "end":
        late = Missing(Why.FAILED, "netdoctor did not get to this")
    elif ended_by == "deadline":
        late = Missing(Why.STOPPED, "the deadline passed before this was measured")
    else:
        late = Missing(Why.STOPPED, "the scan was interrupted before this was measured")
    # What kept a node from its first answer kept it from all that came after, too.
    hosts = store.node.get("host", {})
    first = {n: v for n in nodes if isinstance(v := hosts.get(n), Missing)}
    for info in FACT_TYPES.values():
        if info.group not in groups:
            continue
        if info.scope == "cluster":
            store.cluster.setdefault(info.group, late)
            if info.origin == "measure":
                for node, missing in first.items():
                    store.put(info.group, node, missing)
            continue
        known = store.node.setdefault(info.group, {})
        for node in nodes:
            if node not in known:
                known[node] = first.get(node, late)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.split("%", 1)[0])
    except ValueError:
        return False
    return True


def chosen_pythons(found: Mapping[str, SoftwareFacts]) -> dict[str, str]:
    """The interpreter with torch that each node takes, by node: the same path everywhere where there is one.

    found: what the nodes' default interpreter says. A node that is not in the answer keeps that. Nobody is
    told to run what another node named, nor what somebody else on the node could have made.
    """
    having = {
        node: ([software.executable] if software.torch else [])
        + [other.python for other in software.others if not other.distrust]
        for node, software in found.items()
    }
    usable = {node: [path for path in paths if is_python_path(path)] for node, paths in having.items()}
    shared = in_all(list(usable.values()))
    return {node: shared or paths[0] for node, paths in usable.items() if paths}
