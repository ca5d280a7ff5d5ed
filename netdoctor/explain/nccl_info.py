"""What NCCL_DEBUG=INFO says of a job: releases, network, links, channels, and what is odd. Pure."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from netdoctor.explain.model import NcclInfo
from netdoctor.explain.nccl_lines import NcclLog, Process
from netdoctor.explain.quoting import sanitized

# Interfaces that a bootstrap over several hosts cannot use, by what NCCL leaves in by default.
LOCAL_ONLY = re.compile(r"(?:lo|docker\d|br-|virbr|veth|cni|podman|lxdbr)")
CHANNELS = "{} collective, {} NVLS, {} point to point"
NAMED_MAX = 4
# May well differ between hosts that work together: names of devices, files, colours of logs.
PER_HOST = re.compile(
    r"NCCL_(?:SOCKET_IFNAME|OOB_NET_IFNAME|IB_HCA|DEBUG\w*|TOPO\w*FILE|GRAPH\w*FILE|HOSTID|COMM_ID|CONF_FILE)$"
)


def summarise(log: NcclLog) -> NcclInfo | None:
    """All that NCCL printed, put together; None where that is nothing."""
    processes, ranks = log.processes.values(), log.ranks.values()
    if not any(p.version or p.network or p.bootstrap for p in processes) and not any(r.links for r in ranks):
        return None
    environment: dict[str, Counter[str]] = {}
    for process in processes:
        for name, value in process.environment.items():
            environment.setdefault(name, Counter())[value] += 1
    links: Counter[str] = Counter()
    for rank in ranks:
        links.update(rank.links)
    known = [rank for rank in ranks if rank.rank is not None]
    nvls = {rank.nvls for rank in ranks if rank.nvls is not None}
    return NcclInfo(
        versions=_common(f"{p.version} (CUDA {p.cuda})" for p in processes if p.version),
        drivers=_common(_cuda(p.driver) for p in processes if p.driver),
        hosts=len({host for host, pid in log.processes if pid}),
        ranks=len(known),
        ranks_done=sum(1 for rank in known if rank.done and not rank.begun),
        world=max((rank.world for rank in known), default=0),
        bootstrap=_common(p.bootstrap[0] for p in processes if p.bootstrap),
        networks=_common(p.network for p in processes if p.network),
        hcas=_common(" ".join(p.hcas) for p in processes if p.hcas),
        transports={sanitized(kind, 60): count for kind, count in links.most_common(12)},
        gdr=_gdr(processes, links),
        channels=_common(CHANNELS.format(*rank.channels) for rank in ranks if rank.channels),
        nvls=any(nvls) if nvls else None,
        plugins=_common(plugin for p in processes for plugin in sorted(p.plugins)),
        environment={sanitized(k, 80): _common(v.elements()) for k, v in sorted(environment.items())},
        unexpected=tuple(sanitized(one, 400) for one in _unexpected(log, environment, links)),
    )


def _common(values: Iterable[str]) -> dict[str, int]:
    return {sanitized(value, 300): count for value, count in Counter(values).most_common(8)}


def _cuda(number: str) -> str:
    """12040 is 12.4."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number.isdigit() else number


def _gdr(processes: Iterable[Process], links: Mapping[str, int]) -> str:
    """Whether GPUDirect RDMA is on; empty where no line tells."""
    states = {one for process in processes for one in process.gdr}
    used = any("GDRDMA" in kind for kind in links)
    plain = any(kind.startswith("NET/") and "GDRDMA" not in kind for kind in links)
    if used or (states and all(enabled for enabled, _ in states)):
        return "on for some connections" if used and plain else "on"
    reasons = sorted({why for enabled, why in states if not enabled and why})
    if any(not enabled for enabled, _ in states):
        return f"off ({reasons[0]})" if reasons else "off"
    return ""


def _unexpected(
    log: NcclLog, environment: Mapping[str, Counter[str]], links: Mapping[str, int]
) -> Iterator[str]:
    processes = log.processes
    yield from _differ("NCCL", {w: p.version for w, p in processes.items() if p.version})
    yield from _differ("the CUDA driver", {w: _cuda(p.driver) for w, p in processes.items() if p.driver})
    networks = {who: p.network for who, p in processes.items() if p.network}
    yield from _differ("the network in use", networks)
    with_hcas = [who for who, p in processes.items() if p.hcas]
    fallen = [who for who in with_hcas if networks.get(who) == "Socket"]
    if fallen:
        yield f"{_who(fallen)}: TCP sockets are in use although NCCL found {processes[fallen[0]].hcas[0]}"
    missing = [who for who, p in processes.items() if p.no_device and not p.hcas]
    if missing and with_hcas:
        has = "has" if len({host for host, _ in with_hcas}) == 1 else "have"
        yield f"{_who(missing)}: no HCA was found, while {_who(with_hcas)} {has} some"
    yield from _differ("the number of HCAs", {w: str(len(processes[w].hcas)) for w in with_hcas})
    hosts = {host for host, pid in processes if pid}
    for interface in sorted({p.bootstrap[0] for p in processes.values() if p.bootstrap}):
        on = [who for who, p in processes.items() if p.bootstrap and p.bootstrap[0] == interface]
        if len(hosts) > 1 and LOCAL_ONLY.match(interface):
            yield f"{_who(on)}: the bootstrap is over {interface}, which other hosts cannot reach as a rule"
    yield from _gdr_missing(log, links)
    ranks = {key: rank for key, rank in log.ranks.items() if rank.channels and rank.world}
    for world in sorted({rank.world for rank in ranks.values()}):
        collective = {k: str(r.channels[0]) for k, r in ranks.items() if r.world == world and r.channels}
        yield from _differ("the number of channels", collective)
    yield from _rails(log)
    if log.cut:  # who ended may be behind what was read
        yield f"NCCL says so much that only its first {log.lines:,} lines were looked at"
    stuck = [] if log.cut else [key for key, rank in log.ranks.items() if rank.begun]
    if stuck and len(stuck) < len(log.ranks):
        yield f"{_who(stuck)}: setting up a communicator began and did not end, while others ended"
    elif stuck:
        yield "setting up a communicator began and did not end on any rank"
    for name, values in environment.items():
        if len(values) > 1 and not PER_HOST.match(name):
            set_by = {w: p.environment[name] for w, p in processes.items() if name in p.environment}
            yield from _differ(name, set_by)


def _gdr_missing(log: NcclLog, links: Mapping[str, int]) -> Iterator[str]:
    """GPUDirect RDMA that is off, everywhere or on some ranks."""
    if not any(kind.startswith("NET/") and kind != "NET/Socket" for kind in links):
        off = [w for w, p in log.processes.items() if p.gdr and not any(enabled for enabled, _ in p.gdr)]
        if off:
            yield f"{_who(off)}: GPUDirect RDMA is off"
        return
    through_host: list[tuple[str, ...]] = []
    direct: list[tuple[str, ...]] = []
    for key, rank in log.ranks.items():
        kinds = [kind for kind in rank.links if kind.startswith("NET/") and kind != "NET/Socket"]
        if kinds:
            (direct if any("GDRDMA" in kind for kind in kinds) else through_host).append(key)
    if through_host:
        reasons = {why for p in log.processes.values() for enabled, why in p.gdr if not enabled and why}
        why = f" ({sorted(reasons)[0]})" if reasons else ""
        others = f", while {_who(direct)} use{'s' * (len({k[0] for k in direct}) == 1)} it" if direct else ""
        yield f"{_who(through_host)}: data go through host memory, GPUDirect RDMA is off{why}{others}"


def _rails(log: NcclLog) -> Iterator[str]:
    """GPUs that send over another network device than the GPUs of their number on most hosts."""
    by_number: dict[str, dict[tuple[str, str, str], str]] = {}
    for (host, pid, number), rank in log.ranks.items():
        if rank.devices:
            by_number.setdefault(number, {})[host, pid, number] = ", ".join(map(str, sorted(rank.devices)))
    for number, values in by_number.items():
        most = max(Counter(values.values()).values())
        if len({key[0] for key in values}) > 2 and 2 * most > len(values):  # of two nobody is the odd one
            yield from _differ(f"the network device of GPU {number}", values)


def _differ(what: str, values: Mapping[Any, str]) -> Iterator[str]:
    """One sentence for each value that is not that of most; where none is, one that names them all."""
    count = Counter(values.values())
    typical, times = max(count.items(), key=lambda one: one[1], default=("", 0))
    if len(count) < 2:
        return
    holders = {
        value: _who([key for key, other in values.items() if other == value]) for value in sorted(count)
    }
    if len(count) > 2 and 2 * times <= len(values):
        yield f"{what} is {'; '.join(f'{value} on {who}' for value, who in holders.items())}"
        return
    for value, who in holders.items():
        if value != typical:
            yield f"{who}: {what} is {value}, {'on most' if len(count) > 2 else 'elsewhere'} it is {typical}"


def _who(keys: Sequence[tuple[str, ...]]) -> str:
    """Hosts, or processes where all are of one host."""
    hosts = list(dict.fromkeys(key[0] for key in keys))
    names = hosts if len(hosts) > 1 or len(keys) == 1 else [f"{hosts[0]} ({len(keys)} processes)"]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def to_json(info: NcclInfo) -> dict[str, Any]:
    """For the report's JSON."""
    found = dataclasses.asdict(info)
    renamed = {"world": "world_size", "gdr": "gpudirect_rdma"}
    return {
        renamed.get(key, key): (value or None) if key in renamed else value for key, value in found.items()
    }


def fields(info: NcclInfo) -> Iterator[tuple[str, str]]:
    """(name, value) for people, the most telling first."""
    total = f" of {info.world}" if info.world else ""
    ranks = f", {info.ranks}{total} ranks, {info.ranks_done} set up" if info.ranks else ""
    release = f"release {', '.join(info.versions)}, " if info.versions else ""
    yield "nccl", f"{release}{info.hosts or 'unknown'} host{'s' * (info.hosts != 1)}{ranks}"
    hcas = f": {next(iter(info.hcas))}" if info.hcas else ""
    over = f"; bootstrap over {', '.join(info.bootstrap)}" if info.bootstrap else ""
    if info.networks or over:
        yield "network", f"{', '.join(info.networks) or 'not told'}{hcas}{over}"
    if info.transports:
        yield "links", ", ".join(f"{kind} {count}" for kind, count in info.transports.items())
    if info.gdr:
        yield "gdr", info.gdr
    if info.channels:
        nvls = {None: "", True: "; NVLS available", False: "; no NVLS"}[info.nvls]
        yield "channels", "; ".join(info.channels) + nvls
    if info.plugins:
        yield "plugins", ", ".join(info.plugins)
    if info.environment:
        variables = [f"{name}={next(iter(values))}" for name, values in info.environment.items()]
        yield (
            "set",
            ", ".join(variables[:12]) + (f" and {len(variables) - 12} more" if len(variables) > 12 else ""),
        )
    for one in info.unexpected:
        yield "odd", one
