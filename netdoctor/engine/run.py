"""Decides what runs, in which order, with which bound: log in, collect, measure, judge."""

import ipaddress
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import netdoctor.facts.clock
import netdoctor.facts.gpu
import netdoctor.facts.rdma  # noqa: F401  registers the fact types
from netdoctor.check import Check, Profile
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import collectors
from netdoctor.errors import DeadlineReached
from netdoctor.facts.bandwidth import Baseline, TcpRates
from netdoctor.facts.base import FACT_TYPES, FactInfo, Missing, Why
from netdoctor.facts.host import Login, Node, Session
from netdoctor.facts.net import PortMatrix
from netdoctor.facts.software import Job
from netdoctor.inventory import Target
from netdoctor.measure import bandwidth, clock, collective, loss, path_mtu, ports, routes
from netdoctor.measure.common import Ground
from netdoctor.model import Status
from netdoctor.store import Store, decode
from netdoctor.transport.base import Reply, Request, SessionEvent, Transport

# Names that every node is asked to look up. Past this many, the first ones: lookups grow with the square.
LOOKUPS_AT_MOST = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Something happened.

    phase: ``connect``, ``clock``, ``routes``, ``ports``, ``path-mtu``, ``firewall``, ``loss``, ``tcp``,
    ``allreduce``, ``judge``. done of total nodes (or 0 of 0 when a phase begins without a count); node and
    text describe one event. ends: when all experiments with a time budget mean to be over, on the clock of
    time.monotonic(); None for phases that take as long as their nodes do.
    """

    phase: str
    done: int = 0
    total: int = 0
    node: str | None = None
    text: str = ""
    ends: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to run. judged: node ids that get statuses (peers are contacted all the same), None for all.

    budget_s: for all bandwidth experiments together, once their processes run; None: by profile. baseline:
    figures of an earlier report to compare with.
    """

    profile: Profile = Profile.LAUNCH
    timeout_s: float = 30.0
    budget_s: float | None = None
    judged: tuple[str, ...] | None = None
    baseline: Baseline | None = None


@dataclass(slots=True)
class Outcome:
    """A finished or interrupted scan. ended_by: ``end``, ``interrupt``, ``deadline``."""

    store: Store
    judgement: Judgement
    ended_by: str = "end"
    phase_ms: dict[str, float] = field(default_factory=dict)


Listener = Callable[[Progress], None]


class Scan:
    """One scan: state that survives an interrupt, so that what is known is always judged."""

    def __init__(
        self,
        targets: Sequence[Target],
        checks: Sequence[Check],
        job: Job,
        options: Options,
        listener: Listener = lambda progress: None,
    ) -> None:
        self.targets = tuple(targets)
        self.nodes = tuple(target.id for target in targets)
        self.checks = tuple(checks)
        self.job = job
        self.options = options
        self.listener = listener
        self.store = Store()
        self.phase_ms: dict[str, float] = {}
        self.wanted = _groups(checks)
        self.tracebacks: list[str] = []

    def run(self, transport: Transport) -> Outcome:
        """Everything, then the verdict's raw material.

        KeyboardInterrupt and DeadlineReached end the collecting, not the scan: what was not measured by then
        is unknown.
        """
        self._control_facts()
        ended_by = "end"
        try:
            ended_by = _stopped(lambda: self._collect(transport)) or "end"
        finally:  # also when netdoctor itself broke: sessions do not wait for the process to end
            ended_by = _stopped(transport.close) or ended_by
        # Judging takes well under a second. Whatever stops it, once by an interrupt and once by the deadline,
        # is noted and the judging done again: a scan that collected something has something to say.
        judgement: Judgement | None = None
        while judgement is None:
            try:
                judgement = self._judge(ended_by)
            except KeyboardInterrupt:
                ended_by = "interrupt"
            except DeadlineReached:
                ended_by = "deadline"
        judgement.tracebacks[:0] = self.tracebacks
        return Outcome(
            store=self.store,
            judgement=judgement,
            ended_by=judgement.stopped or ended_by,
            phase_ms=self.phase_ms,
        )

    def _collect(self, transport: Transport) -> None:
        self._connect(transport)
        if self.experiments():
            self._measure(transport)

    def first_requests(self) -> dict[str, Request]:
        """The passive facts each node is asked for right after login."""
        groups = self._first_groups
        request = Request(op="facts", args={"groups": groups}, timeout_s=self.options.timeout_s)
        return dict.fromkeys(self.nodes, request)

    @cached_property
    def _first_groups(self) -> dict[str, dict[str, Any]]:
        known = {info.group: info for info in FACT_TYPES.values()}
        groups: dict[str, dict[str, Any]] = {}
        for group in sorted(self.wanted | {"host"} | self._ground_groups()):
            if known[group].origin == "agent":
                groups[group] = {}
        if "resolve" in groups:
            groups["resolve"] = {"names": self._names()}
        if "port_holder" in groups:
            groups["port_holder"] = {"port": self.job.master_port}
        if "software" in groups:
            groups["software"] = {"packages": list(self.job.packages)}
        return groups

    def _ground_groups(self) -> set[str]:
        """What data addresses are worked out from; needed as soon as nodes talk to each other."""
        groups = {"host", "net", "env"} if self.experiments() or "job" in self.wanted else {"host"}
        # Which interpreter has torch, and whose GPUs are idle.
        return groups | ({"software", "gpu", "rdma"} if self.wanted & {"allreduce", "pair_rates"} else set())

    def _names(self) -> list[str]:
        names = []
        if self.options.profile.includes(Profile.LAUNCH):
            names = [target.host for target in self.targets][:LOOKUPS_AT_MOST]
        if self.job.master_addr:
            names.append(self.job.master_addr)
        return list(dict.fromkeys(name for name in names if not _is_address(name)))

    def experiments(self) -> list[str]:
        """Groups that need nodes to talk to each other or to keep their sessions open."""
        return sorted(
            i.group for i in FACT_TYPES.values() if i.origin == "measure" and i.group in self.wanted
        )

    def _control_facts(self) -> None:
        for target in self.targets:
            self.store.put(
                "node",
                target.id,
                Node(
                    id=target.id,
                    host=target.host,
                    order=target.order,
                    slots=target.slots,
                    gpus=target.gpus,
                    leaf=target.leaf,
                    line=target.line,
                    source=target.source,
                ),
            )
        self.store.cluster["job"] = self.job
        self.store.cluster["baseline"] = self.options.baseline or Missing(
            Why.NOT_COLLECTED, "no --baseline was given"
        )

    def _connect(self, transport: Transport) -> None:
        started = time.monotonic()
        total = len(self.targets)
        done = 0
        self.listener(Progress(phase="connect", total=total))
        for event in transport.start(
            self.targets,
            self.first_requests(),
            keep_open=bool(self.experiments()),
            collectors=collectors(self.checks),
        ):
            if isinstance(event, SessionEvent):
                self.store.put("session", event.node, event.session)
                if event.session.outcome == Login.OK:
                    continue
                done += 1
                self.listener(
                    Progress(
                        phase="connect", done=done, total=total, node=event.node, text=event.session.outcome
                    )
                )
                continue
            done += 1
            self._take(event.node, event.result, event.missing)
            self.listener(Progress(phase="connect", done=done, total=total, node=event.node))
        self.phase_ms["connect"] = (time.monotonic() - started) * 1000
        self._set_ground()

    def _take(self, node: str, result: Any, missing: Missing | None) -> None:
        for group in self._first_groups:
            if missing is not None:
                self.store.put(group, node, missing)
            elif isinstance(result, dict) and group in result:
                self.store.put(group, node, decode(group, result[group]))
            else:
                self.store.put(group, node, Missing(Why.UNPARSABLE, f"{group}: not in the node's answer"))

    def _set_ground(self) -> None:
        """Work out where peers dial each node, and tell the checks through the Job fact."""
        from netdoctor.rules.paths import data_addresses  # pure, but large: only scans need it
        from netdoctor.rules.variables import effective_env, values

        def work() -> dict[str, str]:
            nets = self.store.present("net", self.nodes)
            envs = {
                n: values(effective_env(env, self.job))
                for n, env in self.store.present("env", self.nodes).items()
            }
            ssh = {n: h.ssh_server_address for n, h in self.store.present("host", self.nodes).items()}
            return data_addresses(nets, envs, ssh) if nets else {}

        addresses = self._guarded("the nodes' data addresses", work)
        if isinstance(addresses, Missing):
            addresses = {}
        self.job = replace(self.job, data_addresses=addresses)
        self.store.cluster["job"] = self.job

    def _measure(self, transport: Transport) -> None:
        alive = [
            n
            for n in self.nodes
            if isinstance(session := self.store.get("session", n), Session)
            and session.outcome == Login.OK
            and not isinstance(self.store.get("host", n), Missing)
        ]
        nets = self.store.present("net", alive)
        ground = Ground(
            nodes=tuple(alive),
            addresses=self.job.data_addresses,
            master=self.job.master_node,
            master_port=self.job.master_port,
            ephemeral={n: facts.ephemeral_ports for n, facts in nets.items()},
        )
        watched = _Watched(transport)
        if "clock" in self.wanted:
            self._per_node("clock", alive, lambda: clock.measure(watched, alive))
        if "routes" in self.wanted:
            self._per_node("routes", alive, lambda: routes.measure_routes(watched, ground))
        if "ports" in self.wanted:
            self._per_run("ports", "ports", alive, watched, lambda: ports.measure(watched, ground))
            matrix = self.store.whole("ports")
            if isinstance(matrix, PortMatrix):
                ground = replace(ground, dead=ports.dead_pairs(matrix))
        if "path_mtu" in self.wanted:
            self._per_run("path_mtu", "path-mtu", alive, watched, lambda: path_mtu.measure(watched, ground))
        if "loss" in self.wanted:
            self._per_run("loss", "loss", alive, watched, lambda: loss.measure(watched, ground))
        if "firewall" in self.wanted:
            self._firewall(watched, alive)
        self._bandwidth(watched, ground)
        if "clock" in self.wanted:
            first = dict(self.store.node["clock"])
            again = self._phase("clock", len(alive), lambda: clock.measure(watched, alive))
            if not isinstance(again, Missing):
                for node in alive:
                    self.store.put("clock", node, clock.combine(first.get(node), again.get(node)))

    def _bandwidth(self, watched: "_Watched", ground: Ground) -> None:
        """Throughput between the nodes that reach each other; the others wait for what stops them."""
        parts = [g for g in ("tcp_rates", "pair_rates", "allreduce") if g in self.wanted]
        if not parts:
            return
        budget_s = self.options.budget_s or bandwidth.BUDGET_S[self.options.profile.value]
        nodes = tuple(bandwidth.connected(ground.usable(), self.store.whole("ports")))
        plan = bandwidth.Plan(
            ground=replace(ground, nodes=nodes),
            store=self.store,
            job=self.job,
            shares=bandwidth.shares(parts, budget_s),
        )
        if "tcp_rates" in parts:
            self._per_run(
                "tcp_rates",
                "tcp",
                plan.ground.nodes,
                watched,
                lambda: bandwidth.measure_tcp(watched, plan),
                budget_s=budget_s,
            )
        if "pair_rates" in parts or "allreduce" in parts:
            self._collectives(watched, plan, parts)

    def _collectives(self, watched: "_Watched", plan: bandwidth.Plan, parts: Sequence[str]) -> None:
        """Pairs and all-reduces of torch: one start of ranks for both."""
        tcp = self.store.whole("tcp_rates")
        known = tcp if isinstance(tcp, TcpRates) else None
        profile = self.options.profile.value
        watched.lost.clear()
        found = self._phase(
            "allreduce",
            len(plan.ground.nodes),
            lambda: collective.measure(watched, plan, profile, known),
            budget_s=sum(plan.shares[part] for part in parts if part != "tcp_rates"),
        )
        pairs, reduced = (found, found) if isinstance(found, Missing) else found
        for group, value in (("pair_rates", pairs), ("allreduce", reduced)):
            if group in parts:
                self.store.cluster[group] = value

    def _firewall(self, transport: "_Watched", alive: Sequence[str]) -> None:
        """Rule sets of the nodes at either end of what was filtered; nobody else's are looked at."""
        matrix = self.store.whole("ports")
        if not isinstance(matrix, PortMatrix):
            why = matrix if "ports" in self.wanted else Missing(Why.NOT_COLLECTED, "no port was tried")
            self.store.node["firewall"] = dict.fromkeys(alive, why)
            return
        quiet = Missing(Why.NOT_APPLICABLE, "nothing is filtered here")
        self.store.node["firewall"] = dict.fromkeys(alive, quiet)
        known = set(alive)
        ends = [n for n in routes.filtered_ends(matrix) if n in known]
        if ends:
            self._per_node("firewall", ends, lambda: routes.measure_firewall(transport, ends))

    def _per_node(self, group: str, nodes: Sequence[str], work: Callable[[], Mapping[str, Any]]) -> None:
        """Store what an experiment found about each node."""
        found = self._phase(group, len(nodes), work)
        if isinstance(found, Missing):
            found = dict.fromkeys(nodes, found)
        self.store.node.setdefault(group, {}).update(found)

    def _per_run(
        self,
        group: str,
        phase: str,
        nodes: Sequence[str],
        watched: "_Watched",
        work: Callable[[], Any],
        *,
        budget_s: float | None = None,
    ) -> None:
        """Store what an experiment found about the run, and which nodes were lost while it went on."""
        watched.lost.clear()
        self.store.cluster[group] = self._phase(phase, len(nodes), work, budget_s)
        for node, missing in watched.lost.items():
            self.store.put(group, node, missing)

    def _phase(self, name: str, total: int, work: Callable[[], Any], budget_s: float | None = None) -> Any:
        """The experiment's result, or a Missing when it ended with an exception: the others go on.

        budget_s: seconds for this experiment and those with a budget that follow it.
        """
        started = time.monotonic()
        ends = None if budget_s is None else started + budget_s
        self.listener(Progress(phase=name, total=total, ends=ends))
        found = self._guarded(name, work)
        self.phase_ms[name] = self.phase_ms.get(name, 0.0) + (time.monotonic() - started) * 1000
        self.listener(Progress(phase=name, done=total, total=total))
        return found

    def _guarded(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except DeadlineReached:
            raise
        except Exception as error:  # our own defect, or what a hostile node's answer leads to
            self.tracebacks.append(f"measuring {what} crashed\n{traceback.format_exc()}")
            return Missing(Why.FAILED, f"netdoctor could not measure {what}: {type(error).__name__}: {error}")

    def preview(self, node: str) -> dict[str, Status]:
        """What checks of one node say from the facts it has sent so far. The verdict judges everything again.

        For those who watch. Checks that compare nodes, wait for a fact, or come from plug-ins are left out.
        """
        session = self.store.get("session", node)
        lost = isinstance(session, Session) and session.outcome != Login.OK
        ready = [
            check
            for check in self.checks
            if check.scope == "node"
            and check.origin.startswith("netdoctor.")
            and (lost or all(self._has(parameter.info, node) for parameter in check.parameters))
        ]
        cells = judge(ready, [node], self.store).cells
        return {check: by_node[node] for check, by_node in cells.items()}

    def _has(self, info: FactInfo, node: str) -> bool:
        if info.scope == "cluster":
            return info.group in self.store.cluster
        return node in self.store.node.get(info.group, {})

    def _fill_gaps(self, ended_by: str) -> None:
        """Give every wanted fact that did not arrive its reason."""
        if ended_by == "end":
            late = Missing(Why.FAILED, "netdoctor did not get to this")
        elif ended_by == "deadline":
            late = Missing(Why.STOPPED, "the deadline passed before this was measured")
        else:
            late = Missing(Why.STOPPED, "the scan was interrupted before this was measured")
        # What kept a node from its first answer kept it from all that came after, too.
        hosts = self.store.node.get("host", {})
        first = {n: v for n in self.nodes if isinstance(v := hosts.get(n), Missing)}
        for info in FACT_TYPES.values():
            if info.group not in self.wanted:
                continue
            if info.scope == "cluster":
                self.store.cluster.setdefault(info.group, late)
                if info.origin == "measure":
                    for node, missing in first.items():
                        self.store.put(info.group, node, missing)
                continue
            known = self.store.node.setdefault(info.group, {})
            for node in self.nodes:
                if node not in known:
                    known[node] = first.get(node, late)

    def _judge(self, ended_by: str) -> Judgement:
        self.listener(Progress(phase="judge"))
        self._fill_gaps(ended_by)
        return judge(self.checks, self.nodes, self.store, self.options.judged)


class _Watched:
    """A transport that remembers which nodes were lost on a call, until somebody clears that."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.lost: dict[str, Missing] = {}

    def call(self, requests: Mapping[str, Request]) -> Iterator[Reply]:
        for reply in self.transport.call(requests):
            # By the time listeners are closed the node has told all that was asked.
            late = reply.node in requests and requests[reply.node].op == "unlisten"
            if reply.missing is not None and reply.missing.why is Why.LOST and not late:
                self.lost.setdefault(reply.node, reply.missing)
            yield reply


def _stopped(work: Callable[[], None]) -> str | None:
    """Do `work` and say what stopped it: ``interrupt``, ``deadline``, or None."""
    try:
        work()
    except KeyboardInterrupt:
        return "interrupt"
    except DeadlineReached:
        return "deadline"
    return None


def rejudge(
    store: Store, checks: Sequence[Check], judged: Iterable[str] | None = None, ended_by: str = "end"
) -> Outcome:
    """Judge saved facts again, without any contact. Facts that the earlier scan did not collect make `skip`.

    ended_by: how the earlier scan ended; one that was cut short does not become whole by judging it again.
    """
    nodes = tuple(sorted(store.node.get("node", {}), key=lambda n: getattr(store.get("node", n), "order", 0)))
    return Outcome(store=store, judgement=judge(checks, nodes, store, judged), ended_by=ended_by)


def ready_nodes(judgement: Judgement) -> tuple[list[str], list[str], list[str]]:
    """(healthy, unhealthy, undecided): no trouble; a fail or blocked; no fail, but a required unknown."""
    healthy: list[str] = []
    unhealthy: list[str] = []
    undecided: list[str] = []
    for node in judgement.nodes:
        letters = {
            (check.required, judgement.cells[check.id].get(node, Status.SKIP)) for check in judgement.checks
        }
        statuses = {status for _, status in letters}
        if (True, Status.UNKNOWN) in letters and Status.FAIL not in statuses:
            undecided.append(node)
        elif statuses & {Status.FAIL, Status.BLOCKED}:
            unhealthy.append(node)
        else:
            healthy.append(node)
    return healthy, unhealthy, undecided


def _groups(checks: Sequence[Check]) -> set[str]:
    return {parameter.info.group for check in checks for parameter in check.needs}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.split("%", 1)[0])
    except ValueError:
        return False
    return True
