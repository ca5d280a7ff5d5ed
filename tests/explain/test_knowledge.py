"""What every knowledge file promises."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from netdoctor.engine.registry import load_builtin
from netdoctor.explain import literals
from netdoctor.explain.engine import explain_text
from netdoctor.explain.knowledge import CERTAIN, Knowledge, KnowledgeError, Role, load, read
from netdoctor.explain.model import Confidence

ROOT = Path(__file__).parents[2]
TAXONOMY = frozenset(
    [
        "ended_by_scheduler",
        "node_failed",
        "container_runtime",
        "disk_full",
        "cpu_overloaded",
        "external_service",
        "model_hub",
        "program_failed",
        "software_missing",
        "storage_failing",
        "nccl_setting_refused",
        "clock_wrong",
        "file_damaged",
        "gpu_slowed",
        "loss_not_finite",
        "native_crash",
        "network_flaky",
        "process_limit",
        "slurm_request_invalid",
        "wrong_socket_ifname",
        "socket_ifname_not_found",
        "hostname_resolves_loopback",
        "hostname_unresolvable",
        "rdzv_endpoint_mismatch",
        "master_addr_wrong",
        "rank_world_size_misconfig",
        "port_in_use",
        "firewall_blocked",
        "cloud_security_group",
        "subnet_or_route_config",
        "proxy_environment",
        "ipv6_address_family",
        "container_network_isolated",
        "mtu_mismatch",
        "roce_gid_index",
        "ib_link_or_fabric",
        "cross_rail_unreachable",
        "mixed_transport",
        "gdr_peermem_missing",
        "memlock_limit",
        "efa_provider_unavailable",
        "p2p_acs_iommu",
        "nvls_fabric_state",
        "fabric_manager",
        "gpu_hardware_fault",
        "gpu_oom_one_rank",
        "host_oom_killed",
        "shm_too_small",
        "nofile_limit",
        "driver_too_old",
        "driver_library_mismatch",
        "nccl_version_mismatch",
        "net_plugin_config",
        "nccl_env_mismatch",
        "torch_version_mismatch",
        "ray_version_mismatch",
        "duplicate_gpu",
        "slurm_gpu_binding",
        "ssh_not_passwordless",
        "shared_filesystem_missing",
        "collective_timeout_slow_rank",
        "mismatched_collectives",
        "wsl_environment",
    ]
)


@pytest.fixture(scope="module")
def known() -> Knowledge:
    return load()


def test_every_label_has_its_file(known: Knowledge) -> None:
    assert known.causes.keys() == TAXONOMY


def test_patterns_find_their_own_lines_and_take_linear_time(known: Knowledge) -> None:
    wrong = []
    for one in known.patterns:
        if not re.search(one.regex, one.line, re.ASCII):
            wrong.append(f"{one.id}: the regex does not find its line")
        if _nested_repeats(one.regex):
            wrong.append(f"{one.id}: a repetition without a bound within another")
        if re.search(r"(?<!\\)(?<!\[)\^|(?<!\\)\$", one.regex):
            wrong.append(f"{one.id}: launchers put things before and behind a line: no ^, no $")
    assert not wrong


NESTED = {r"(a+)+b": True, r"(?:\w+\s)*x": True, r"(?:\w{1,9}\s?){0,4}x": False, r"\w+ \w+": False}


def test_repetitions_within_repetitions_are_seen() -> None:
    assert {regex: _nested_repeats(regex) for regex in NESTED} == NESTED


def _nested_repeats(regex: str) -> bool:
    """Whether a repetition without a bound holds another one, so that a match may take exponential time."""
    return _nested(literals._parser.parse(regex, re.ASCII), inside=False)


def _nested(items: Iterable[Any], inside: bool) -> bool:
    for op, argument in items:
        if op in literals._REPEATS:
            unbounded = argument[1] is literals._constants.MAXREPEAT
            if (inside and argument[1] > 1) or _nested(argument[2], inside or unbounded):
                return True
        elif op is literals._constants.SUBPATTERN:
            if _nested(argument[-1], inside):
                return True
        elif op is literals._constants.BRANCH:
            if any(_nested(branch, inside) for branch in argument[1]):
                return True
        elif op in (literals._constants.ASSERT, literals._constants.ASSERT_NOT) and _nested(
            argument[1], inside
        ):
            return True
    return False


def test_a_line_alone_leads_to_what_it_admits(known: Knowledge) -> None:
    """And is certain of nothing but what a pattern says that knows it."""
    wrong = []
    for one in known.patterns:
        if one.role is Role.CONTEXT or one.needs or one.differs or one.rank is not None:
            continue
        said = {r.known.label: r.confidence for r in explain_text({"log": one.line}, known).reasons}
        missing = [label for label, percent in one.admits.items() if label not in said and percent >= 10]
        if missing and len(said) < 8:
            wrong.append(f"{one.id}: says nothing of {missing}")
        certain = [label for label, confidence in said.items() if confidence is Confidence.CERTAIN]
        if certain and one.admits.get(certain[0]) != CERTAIN:
            wrong.append(f"{one.id}: its line is taken as certain for {certain[0]}")
        best = max(one.admits.values(), default=0)
        if best == CERTAIN and one.role is Role.CAUSE and not certain:
            wrong.append(f"{one.id}: is not certain of its own line: {said}")
    assert not wrong


def test_checks_and_their_causes_exist(known: Knowledge) -> None:
    checks = load_builtin()
    sources = [*(ROOT / "checks").rglob("*.py"), *(ROOT / "checks").rglob("*.toml")]
    everything = "\n".join(path.read_text("utf-8") for path in sources)
    wrong = [
        f"{one.label}: no check {check}"
        for one in known.causes.values()
        for check in (*one.checks, *one.fix_from)
        if check not in checks
    ]
    wrong += [
        f"{one.label}: no check finds the cause {key!r}"
        for one in known.causes.values()
        for key in one.causes
        if f'"{key.rstrip("*")}' not in everything
    ]
    assert not wrong


# Checks that no cause names, and why: a line of a log can lead to none of them.
UNASKED = {
    "bw.collectives": "it runs for a while in a full scan; of all-reduces bw.allreduce says what decides",
    "bw.groups": "rates: nothing fails of a slow link, and nobody knows the job's groups from its log",
    "bw.ladder": "rates: nothing fails of a slow link, and it costs minutes of traffic",
    "bw.pair": "rates: nothing fails of a slow link, and it costs minutes of traffic",
    "bw.rdma": "rates: nothing fails of a slow link, and it costs minutes of traffic",
    "bw.tcp": "rates: nothing fails of a slow link, and it costs minutes of traffic",
    "fs.rate": "rates: nothing fails of slow storage, and it writes where it measures",
    "gpu.affinity": "slows transfers and ends no job",
    "host.tuning": "slows steps and ends no job",
    "net.after-reboot": "what a reboot would take away is there now",
    "ssh.speed": "slows launches and ends no job",
    "facts.file": "of netdoctor's own way to the nodes, which no job uses",
    "meet.task": "of netdoctor's own way to the nodes, which no job uses",
}


def test_each_check_is_asked_by_a_cause_or_listed_with_the_reason(known: Knowledge) -> None:
    asked = {check for one in known.causes.values() for check in one.checks}
    assert UNASKED.keys() == load_builtin().keys() - asked


def test_what_only_a_moment_showed_is_not_ruled_out_by_a_scan_of_today(known: Knowledge) -> None:
    """Memory, disks and links are well again when the job is gone; a launcher's numbers no check sees."""
    passing = ("host_oom_killed", "gpu_oom_one_rank", "disk_full", "ib_link_or_fabric", "port_in_use")
    unseen = ("rank_world_size_misconfig", "duplicate_gpu", "collective_timeout_slow_rank")
    assert not any(known.causes[label].standing for label in (*passing, *unseen))
    assert known.causes["firewall_blocked"].standing


@pytest.mark.parametrize(
    ("line", "checks"),
    [
        ("RuntimeError: CUDA error 802: system not yet initialized", {"gpu.fabric"}),
        ("NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
         {"rdma.errors", "rdma.port", "rdma.gid"}),
        ("pdsh@node1: node0: Permission denied (publickey).", {"ssh.login", "ssh.mesh"}),
        ("ssh: connect to host node1 port 22: Connection refused", {"ssh.login", "ssh.mesh"}),
    ],
)  # fmt: skip
def test_a_line_asks_every_check_that_decides(line: str, checks: set[str], known: Knowledge) -> None:
    said = explain_text({"log": line}, known).reasons
    assert checks <= {check for one in said for check in one.known.checks}


def test_every_file_has_a_source(known: Knowledge) -> None:
    assert all(one.source for one in known.patterns)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"label": "x", "title": "t", "why": "w", "colour": "red"}, "unknown field `colour`"),
        ({"pattern": [{"regex": "(", "line": "l", "source": "s"}]}, "regex:"),
        ({"pattern": [{"regex": r"\d+", "line": "l", "source": "s"}]}, "3 fixed letters"),
        (
            {"pattern": [{"regex": "refusing", "line": "l", "source": "s", "role": "reason"}]},
            "$.pattern[0].role",
        ),
        ({"pattern": [{"regex": "refusing", "line": "l"}]}, "missing required field `source`"),
        (
            {"pattern": [{"regex": "refusing", "line": "l", "source": "s", "admits": {"a": 0}}]},
            "$.pattern[0].admits",
        ),
        ({"label": "y", "title": "t", "why": "w"}, "is called y.toml"),
        ({"label": "x", "title": "t"}, "label, title and why belong to every cause"),
    ],
)
def test_says_what_is_wrong_with_a_file(data: dict[str, object], said: str) -> None:
    with pytest.raises(KnowledgeError, match=re.escape(said)):
        read(data, "x.toml")
