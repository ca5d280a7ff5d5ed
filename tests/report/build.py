"""Reports for tests: the ones drawn in the documentation, at any number of nodes."""

import dataclasses
from collections.abc import Mapping, Sequence

from netdoctor.report.model import (
    Cause,
    CheckRecord,
    CommandRecord,
    Counts,
    EvidenceRecord,
    Explained,
    FamilyRow,
    FixRecord,
    Matrix,
    MeasureRecord,
    Note,
    PairRecord,
    Report,
    Result,
    Run,
    TargetRecord,
    Tool,
    Verdict,
    Verify,
)

FAMILIES = {
    "ssh": 5,
    "time": 2,
    "net": 9,
    "nccl": 6,
    "sw": 7,
    "gpu": 8,
    "bw": 3,
}
STATUS = {".": "pass", "!": "warn", "X": "fail", "b": "blocked", "-": "skip", "?": "unknown"}


def node_names(nodes: int) -> tuple[str, ...]:
    width = max(2, len(str(nodes)))
    return tuple(f"gpu-a{n:0{width}}" for n in range(1, nodes + 1))


def check_ids() -> tuple[str, ...]:
    named = {
        "ssh": ["ssh.login"],
        "time": ["time.sync", "time.skew"],
        "net": ["net.ports"],
        "nccl": ["nccl.ifname", "nccl.smoke"],
        "bw": ["bw.pair", "bw.rail", "bw.allreduce"],
    }
    return tuple(
        check
        for family, count in FAMILIES.items()
        for check in [*named.get(family, []), *(f"{family}.part{n}" for n in range(9))][:count]
    )


def firewall(names: Sequence[str], victim: str, explained: Sequence[Explained]) -> Cause:
    rest = [name for name in names if name != victim]
    inner = (
        "sudo firewall-cmd --permanent --zone=trusted --add-source=10.20.0.0/24 && sudo firewall-cmd --reload"
    )
    return Cause(
        id=1,
        key="firewall-inbound",
        fingerprint="sha256:1111",
        status="fail",
        title=f"{victim} drops connections that come from the other nodes",
        checks=("net.ports",),
        nodes=victim,
        node_list=(victim,),
        confidence="certain",
        seen=(
            f"TCP 29500, 40211, 52113 from {len(rest)} nodes: no answer in 3.0 s (filtered)",
            f"the same ports outward from {victim}: open",
            f"firewalld runs on {victim}, zone public, allows: ssh",
        ),
        explains=tuple(explained),
        held=len(explained),
        fixes=(
            FixRecord(
                text="",
                commands=(CommandRecord(run_on=(victim,), shell=f"ssh {victim} '{inner}'", inner=inner),),
                needs_root=True,
                widens="trusts the subnet 10.20.0.0/24",
            ),
        ),
        verify=Verify(
            argv=("netdoctor", "scan", "--last", "--only", "net.ports", "--node", victim),
            shell=f"netdoctor scan --last --only net.ports --node {victim}",
        ),
        why="every rank listens on ports of its own; one node that drops them stops the whole job",
    )


def interface(victims: Sequence[str], folded: str) -> Cause:
    return Cause(
        id=2,
        key="ifname-missing",
        fingerprint="sha256:2222",
        status="fail",
        title=f"{folded} {'have' if len(victims) > 1 else 'has'} no interface eth0,"
        " which NCCL_SOCKET_IFNAME asks for",
        checks=("nccl.ifname",),
        nodes=folded,
        node_list=tuple(victims),
        confidence="certain",
        seen=(
            "NCCL_SOCKET_IFNAME=eth0 (train.env, line 4) on all nodes",
            f"{folded} ens10f0np0 10.20.0.14/24",
        ),
        fixes=(
            FixRecord(
                text="one value that fits all nodes",
                commands=(CommandRecord(run_on=("job",), shell="export NCCL_SOCKET_IFNAME=eth0,ens10f0np0"),),
                effect="next launch",
                where="in train.env",
            ),
        ),
        verify=Verify(
            argv=("netdoctor", "scan", "--last", "--only", "nccl.ifname", "--env-file", "train.env"),
            shell="netdoctor scan --last --only nccl.ifname --env-file train.env",
        ),
    )


def clock(victims: Sequence[str], folded: str) -> Cause:
    inner = "sudo systemctl enable --now chronyd && sudo chronyc makestep"
    return Cause(
        id=3,
        key="clock-skew",
        fingerprint="sha256:3333",
        status="warn",
        title=f"the clock of {folded} is 2.41 s ahead and nothing corrects it",
        checks=("time.skew",),
        nodes=folded,
        node_list=tuple(victims),
        confidence="certain",
        seen=("offset +2.410 s +/- 0.002 s against the median; chronyd not running",),
        fixes=(
            FixRecord(
                text="start the time daemon and step the clock",
                commands=tuple(
                    CommandRecord(run_on=(name,), shell=f"ssh {name} '{inner}'", inner=inner)
                    for name in victims
                ),
                needs_root=True,
            ),
        ),
        verify=Verify(
            argv=("netdoctor", "scan", "--last", "--only", "time.*", "--node", folded),
            shell=f"netdoctor scan --last --only 'time.*' --node '{folded}'",
        ),
    )


def lost(victim: str) -> Cause:
    return Cause(
        id=1,
        key="session-lost",
        fingerprint="sha256:4444",
        status="unknown",
        title=f"netdoctor lost its connection to {victim} after login",
        checks=("ssh.login",),
        nodes=victim,
        node_list=(victim,),
        confidence="likely",
        seen=("login worked at 14:02:13; channel closed by remote 4.1 s later",),
        verify=Verify(
            argv=("netdoctor", "scan", "--last", "--node", victim, "-vv"),
            shell=f"netdoctor scan --last --node {victim} -vv",
        ),
    )


def sample_report(state: str = "not_ready", *, nodes: int = 4, interrupted: bool = False) -> Report:
    """state: ``ready``, ``not_ready`` (three causes) or ``undecided`` (one node lost).

    With `interrupted` everything in the bandwidth family is unknown because the run was stopped.
    """
    names, checks = node_names(nodes), check_ids()
    cells = {check: ["."] * nodes for check in checks}
    results: dict[tuple[str, str], Result] = {}

    def put(check: str, indices: Sequence[int], status: str, summary: str, cause: int | None) -> None:
        letter = next(letter for letter, known in STATUS.items() if known == status)
        for index in indices:
            cells[check][index] = letter
            results[check, names[index]] = Result(
                check=check, target=names[index], status=status, summary=summary, cause=cause
            )

    every = range(nodes)
    causes: tuple[Cause, ...] = ()
    remarks: dict[str, str] = {
        "sw": "torch 2.6.0+cu124, NCCL 2.21.5, Python 3.11.9",
        "gpu": "driver 570.86.15",
    }
    family_causes: dict[str, tuple[int, ...]] = {}
    put("gpu.part7", [0], "skip", "the node has no MIG device", None)
    exit_code, headline, ended_by = 0, "worst skew 0.8 ms, slowest pair 46.1 of 48.5 GB/s expected", "end"
    healthy, unhealthy, undecided = list(names), [], []
    if state == "not_ready":
        exit_code, headline = 1, ""
        third = min(2, nodes - 1)
        iface = [nodes - 1] if nodes < 100 else list(range(699, 731))
        skewed = [1] if nodes < 100 else list(range(99, 107))
        held = ["nccl.smoke", "bw.pair", "bw.rail", "bw.allreduce"]
        for check in held:
            put(check, every, "blocked", "waits for [1]", 1)
        put("net.ports", [third], "fail", "drops connections from its peers", 1)
        put("nccl.ifname", iface, "fail", "no interface eth0", 2)
        put("time.skew", skewed, "warn", "clock +2.41 s", 3)
        explained = [Explained(check=check, target=name) for check in held for name in names]
        causes = (
            firewall(names, names[third], explained),
            interface([names[i] for i in iface], _span(names, iface)),
            clock([names[i] for i in skewed], _span(names, skewed)),
        )
        family_causes = {"net": (1,), "nccl": (1, 2), "time": (3,), "bw": (1,)}
        bad = {names[third], *(names[i] for i in iface)}
        unhealthy = [name for name in names if name in bad]
        healthy = [name for name in names if name not in bad]
    elif state == "undecided":
        exit_code, headline = 3, ""
        for check in checks:
            put(check, [1], "unknown", "the connection was lost", 1)
        causes = (lost(names[1]),)
        family_causes = dict.fromkeys(FAMILIES, (1,))
        remarks = {}
        undecided = [names[1]]
        healthy = [name for name in names if name != names[1]]
    if interrupted:
        exit_code, ended_by = 130, "interrupt"
        headline = ""
        for check in ("bw.pair", "bw.rail", "bw.allreduce"):
            put(check, every, "unknown", "the run was stopped before this", None)
        state = state if state == "not_ready" else "undecided"
        healthy, undecided = [], list(names)
    rows = {check: "".join(row) for check, row in cells.items()}
    return Report(
        tool=Tool(version="0.1.0"),
        run=Run(
            id="20260102T140200-4f2a",
            started="2026-01-02T14:02:00Z",
            finished="2026-01-02T14:02:11Z",
            duration_ms=11_800,
            complete=not interrupted,
            ended_by=ended_by,
            profile="full",
            hosts_source={"path": "hosts.txt", "format": "plain"},
            control_host={"name": "login1", "python": "3.11.9"},
            replay={"hosts": ["hosts.txt"], "options": {"profile": "full"}},
            saved_to=".netdoctor/last.json",
        ),
        verdict=Verdict(
            state=state, exit_code=exit_code, fail_on="fail", counts=_counts(rows), headline=headline
        ),
        targets=tuple(
            TargetRecord(
                id=name,
                address=f"10.20.{n // 250}.{n % 250 + 1}",
                port=22,
                user="ml",
                reached=True,
                order=n,
                line=n + 1,
                facts={"gpus": 8, "gpu_model": "NVIDIA H100 80GB HBM3"}
                if nodes <= 64 or state != "ready"
                else {},
            )
            for n, name in enumerate(names)
        ),
        checks=tuple(
            CheckRecord(
                id=check,
                title=f"{check} is as expected.",
                family=check.partition(".")[0],
                scope="node",
                cost="read-only",
            )
            for check in checks
        ),
        matrix=Matrix(checks=checks, nodes=names, cells=tuple(rows.values())),
        results=tuple(results[check, name] for check in checks for name in names if (check, name) in results),
        pairs=(
            PairRecord(
                check="net.ports",
                from_=names[0],
                to=names[-1],
                status="fail",
                class_="filtered",
                ports=(29500, 40211),
            ),
        )
        if state == "not_ready" and nodes > 1
        else (),
        measures=(MeasureRecord(name="time.skew", target=names[-1], value=0.8, unit="ms", error=0.3),),
        causes=causes,
        families=tuple(_family(f, rows, family_causes.get(f, ()), remarks.get(f, "")) for f in FAMILIES),
        launch={"world_size": nodes * 8, "master_port": 29500},
        healthy_nodes=tuple(healthy),
        unhealthy_nodes=tuple(unhealthy),
        undecided_nodes=tuple(undecided),
    )


def with_evidence(report: Report) -> Report:
    """`report` with evidence, values and a time on its first result."""
    first = dataclasses.replace(
        report.results[0],
        observed="none",
        expected="one",
        expected_from="peers",
        evidence=(
            EvidenceRecord(
                kind="command", where="gpu-a01", what="nvidia-smi mig -lgi", output="No MIG\nnone"
            ),
        ),
        duration_ms=12.5,
    )
    notes = (Note(level="info", text="2 nodes were skipped: --node gpu-a[01-04]"),)
    return dataclasses.replace(report, results=(first, *report.results[1:]), notes=notes)


def _span(names: Sequence[str], indices: Sequence[int]) -> str:
    first, last = names[indices[0]], names[indices[-1]]
    return first if first == last else f"gpu-a[{first[5:]}-{last[5:]}]"


def _counts(rows: Mapping[str, str]) -> Counts:
    text = "".join(rows.values())
    return Counts(
        pass_=text.count("."),
        warn=text.count("!"),
        fail=text.count("X"),
        blocked=text.count("b"),
        skip=text.count("-"),
        unknown=text.count("?"),
    )


def _family(family: str, rows: Mapping[str, str], causes: tuple[int, ...], remark: str) -> FamilyRow:
    letters = {letter for check, row in rows.items() if check.partition(".")[0] == family for letter in row}
    order = ("X", "?", "!", "b", ".", "-")
    worst = next(letter for letter in order if letter in letters)
    status = STATUS[worst]
    return FamilyRow(
        family=family,
        checks=FAMILIES[family],
        status=status,
        causes=causes if status != "pass" else (),
        remark=remark,
    )
