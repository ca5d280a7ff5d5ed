"""AMD's GPUs: driven, offered, allowed, alike; and accelerators that nothing here knows."""

from typing import Any

from netdoctor.checks.amd.health import AT_WORK_PERCENT, amd_health
from netdoctor.checks.amd.idle import amd_idle
from netdoctor.checks.amd.parity import amd_parity
from netdoctor.checks.amd.visible import HIDDEN, amd_visible
from netdoctor.checks.gpu.count import gpu_count
from netdoctor.checks.gpu.visible import gpu_visible
from netdoctor.facts.accelerators import AcceleratorFacts, AmdGpu, AmdSensor
from netdoctor.model import Finding, Status

from . import build_hw as hw
from .build import host, name, node


def board(i: int = 0, **changes: Any) -> AmdGpu:
    usual: dict[str, Any] = {
        "device_id": "0x74a1",
        "driver": "amdgpu",
        "vram_bytes": 192 << 30,
        "vbios": "113-M3",
        "partition": "SPX",
        "busy_percent": 0,
        "ras_blocks": ("umc", "gfx"),
        "sensors": (AmdSensor(name="junction", temperature_c=41.0, critical_c=100.0),),
        "power_cap_w": 750.0,
        "power_default_w": 750.0,
        "level": "auto",
        "clock_most_mhz": 2100,
        "link_gt_s": 32.0,
        "link_most_gt_s": 32.0,
        "link_width": 16,
        "xgmi_links": 7,
    }
    return AmdGpu(address=f"0000:{5 + i:02x}:00.0", **{**usual, **changes})


def mi300x(count: int = 8, **changes: Any) -> AcceleratorFacts:
    usual: dict[str, Any] = {
        "amd": tuple(map(board, range(count))),
        "kfd": ("gfx942",) * count,
        "amdgpu": "6.10.5",
        "rocm": "6.3.1-48",
        "rccl": "1.0.60301",
        "may_compute": True,
    }
    return AcceleratorFacts(**{**usual, **changes})


NOTHING = AcceleratorFacts()
GAUDI = AcceleratorFacts(others={"Intel Gaudi": 8})
NO_DRIVER = mi300x(amd=tuple(board(i, driver=None if i else "vfio-pci") for i in range(2)), kfd=())

VISIBLE: dict[str, tuple[AcceleratorFacts, list[tuple[str, str]]]] = {
    "healthy": (mi300x(), []),
    "partitioned: more than there are boards": (mi300x(1, kfd=("gfx942",) * 8), []),
    "no driver": (NO_DRIVER, [("amd-no-driver", "2 of 2 AMD GPUs are bound to no driver and vfio-pci")]),
    "one that does not start": (
        mi300x(kfd=("gfx942",) * 7),
        [("amd-fewer", "8 AMD GPUs on the PCI bus, 7 that can compute")],
    ),
    "no right": (mi300x(may_compute=False), [("amd-permission", "the login user may not open /dev/kfd")]),
    "no /dev/kfd": (mi300x(may_compute=None), [("amd-permission", "the login user may not open /dev/kfd")]),
}


def test_what_keeps_amd_gpus_from_computing() -> None:
    for case, (facts, expected) in VISIBLE.items():
        found = list(amd_visible(facts, host()))
        assert [(one.cause.key, one.summary) for one in found if one.cause] == expected, case
        assert {one.status for one in found} <= {Status.FAIL}, case


def test_what_does_not_apply_or_is_kept_from_the_login() -> None:
    (none,) = amd_visible(NOTHING, host())
    assert (none.status, none.gap) == (Status.SKIP, None)
    (hidden,) = amd_visible(mi300x(kfd=("gfx942",), kfd_hidden=7), host())
    assert (hidden.status, hidden.gap) == (Status.SKIP, HIDDEN)
    assert "netdoctor scan --via slurm" in hidden.summary
    (given,) = amd_visible(mi300x(kfd=(), may_compute=None), host(container="docker"))
    assert (given.status, given.cause and given.cause.key) == (Status.WARN, "amd-not-in-container")


HOT = (AmdSensor(name="junction", temperature_c=100.0, critical_c=100.0),)
UNHEALTHY: dict[str, tuple[dict[str, Any], str]] = {
    "uncorrected errors since the driver was loaded: 2 in umc": ({"uncorrected": {"umc": 2}}, "amd-ecc"),
    "1 bad page of memory cannot be retired": ({"bad_pages": {"F": 1}}, "amd-memory-worn"),
    "3 bad pages of memory wait for a reset": ({"bad_pages": {"P": 3, "R": 9}}, "amd-memory-pending"),
    "junction at 100 C": ({"sensors": HOT}, "amd-hot"),
    "limited to 550 W": ({"power_cap_w": 550.0}, "amd-power-capped"),
    "performance level low": ({"level": "low"}, "amd-clocks-set"),
    "has 1300 MHz at most, most have 2100": ({"clock_most_mhz": 1300}, "amd-clocks-set"),
    "has 8 PCIe lanes, most have 16": ({"link_width": 8}, "amd-pcie-narrow"),
    "at work on 16 GT/s": ({"link_gt_s": 16.0, "busy_percent": AT_WORK_PERCENT}, "amd-pcie-narrow"),
    "has 6 XGMI links, most have 7": ({"xgmi_links": 6}, "amd-xgmi-fewer"),
}


def spoilt(**changes: Any) -> AcceleratorFacts:
    return mi300x(amd=(*map(board, range(7)), board(7, **changes)))


def health(*nodes: AcceleratorFacts) -> list[Finding]:
    return list(amd_health({name(i): facts for i, facts in enumerate(nodes, 1)}))


def test_a_board_that_is_not_well_is_named() -> None:
    assert health(mi300x(), mi300x()) == []
    assert health(mi300x(1)) == []
    for said, (changes, key) in UNHEALTHY.items():
        (found,) = (one for one in health(mi300x(), spoilt(**changes)) if one.status is not Status.PASS)
        assert found.cause, said
        assert (found.target, found.status, found.cause.key) == ("n2", Status.WARN, key)
        assert found.summary.startswith("AMD GPU 0000:0c:00.0"), found.summary
        assert said in found.summary


def test_what_is_normal_for_boards() -> None:
    """Corrected errors, an idle link, limits that all have, a board that sleeps, a virtual machine."""
    (told,) = health(spoilt(corrected={"umc": 40}, bad_pages={"R": 2}, replays=1))
    assert told.status is Status.PASS
    assert "40 corrected errors, 2 retired pages and 1 PCIe replay" in told.summary
    same = mi300x(amd=tuple(board(i, link_width=8, xgmi_links=3, clock_most_mhz=900) for i in range(8)))
    assert health(same, same) == []
    assert health(spoilt(link_gt_s=2.5)) == []
    assert health(mi300x(2, amd=(board(0), board(1, link_width=8)))) == [], "two have no majority"
    assert (
        health(mi300x(amd=(*map(board, range(7)), AmdGpu(address="x", device_id="0x74a1", asleep=True))))
        == []
    )
    # The second die of each MI250 knows no limit.
    dies = mi300x(amd=tuple(board(i, **({"power_cap_w": None} if i % 2 else {})) for i in range(8)))
    assert health(dies, dies) == []
    virtual = mi300x(amd=tuple(board(i, ras_blocks=(), sensors=()) for i in range(8)))
    for facts in (NOTHING, GAUDI, NO_DRIVER, virtual):
        assert [one.status for one in health(facts)] == [Status.SKIP]


def test_a_board_that_does_not_tell_is_not_green() -> None:
    for silent in (
        {"ras_blocks": ()},
        {"sensors": ()},
        {"power_cap_w": None},
        {"level": ""},
        {"link_width": None},
        {"link_gt_s": None, "busy_percent": 90},
    ):
        (found,) = health(mi300x(), spoilt(**silent))
        assert (found.target, found.status) == ("n2", Status.UNKNOWN)


def test_who_is_on_the_gpus_already() -> None:
    def idle(**changes: Any) -> list[Finding]:
        return list(amd_idle(mi300x(**{"processes": (), **changes})))

    assert idle() == []
    assert idle(processes=(hw.process(7, name="dcgm"),)) == []
    (busy,) = idle(processes=(hw.process(4711, name="python3", left_over=True),))
    assert (busy.status, busy.cause and busy.cause.key) == (Status.WARN, "amd-busy")
    assert "python3 (pid 4711, alice, left over by a session)" in busy.summary
    (held,) = idle(amd=(board(0, vram_used_bytes=60 << 30), board(1, vram_used_bytes=300 << 20)))
    assert held.summary == "61440 MiB of 0000:05:00.0 are in use by processes that cannot be seen"
    (untold,) = idle(processes=None)
    assert (untold.status, untold.gap) == (Status.SKIP, "who uses the AMD GPUs")
    assert [one.status for one in amd_idle(NOTHING)] == [Status.SKIP]


def parity(*nodes: AcceleratorFacts) -> list[Finding]:
    return [one for one in amd_parity({name(i): facts for i, facts in enumerate(nodes, 1)}) if one.cause]


def test_the_odd_one_is_named() -> None:
    alike = (mi300x(), mi300x(), NOTHING)
    assert parity(*alike, mi300x()) == []
    for odd, key, said in (
        (mi300x(7), "amd-gpus", "AMD GPUs 7 x gfx942 here, 8 x gfx942 on most nodes"),
        (mi300x(amdgpu="6.8.0"), "amd-driver", "amdgpu 6.8.0 here, 6.10.5 on most nodes"),
        (mi300x(rocm="6.2.4-1"), "amd-rocm", "ROCm 6.2.4-1 here, 6.3.1-48 on most nodes"),
        (mi300x(rccl="1.0.60204"), "amd-rccl", "RCCL 1.0.60204 here, 1.0.60301 on most nodes"),
        (
            mi300x(amd=tuple(board(i, partition="CPX" if i else "SPX") for i in range(8))),
            "amd-partition",
            "partitioning CPX and SPX here, SPX on most nodes",
        ),
    ):
        (found,) = parity(*alike, odd)
        assert found.cause is not None
        assert (found.target, found.status, found.cause.key) == ("n4", Status.WARN, key)
        assert found.summary == said


def test_what_a_node_does_not_have_is_no_difference() -> None:
    assert parity(mi300x(), mi300x(rocm=None, rccl=None, amdgpu=None)) == []
    assert parity(mi300x(rocm=None), mi300x(rocm=None)) == []


def test_nvidia_checks_leave_other_hardware_alone() -> None:
    for facts, gap in ((mi300x(), False), (GAUDI, True)):
        (said,) = gpu_visible(node(gpus=8), hw.no_gpus(), host(), facts)
        assert (said.status, bool(said.gap)) == (Status.SKIP, gap)
    (absent,) = gpu_visible(node(gpus=8), hw.no_gpus(), host(), NOTHING)
    assert absent.status is Status.FAIL


def counted(*nodes: AcceleratorFacts, gpus: int | None = None) -> list[tuple[str, str]]:
    names = [name(i) for i in range(1, len(nodes) + 1)]
    listed = {one: node(i, gpus=gpus) for i, one in enumerate(names, 1)}
    found = gpu_count(dict.fromkeys(names, hw.no_gpus()), listed, None, dict(zip(names, nodes, strict=True)))
    return [(one.target, one.status.value) for one in found if one.status is not Status.PASS]


def test_amd_gpus_are_counted() -> None:
    assert counted(mi300x(), mi300x(), gpus=8) == []
    assert counted(mi300x(), mi300x(), mi300x(7)) == [("n3", "warn")]
    assert counted(mi300x(), mi300x(7), gpus=8) == [("n2", "fail")]
    assert counted(GAUDI, GAUDI, gpus=8) == [("n1", "skip"), ("n2", "skip")]
    assert counted(mi300x(), mi300x(kfd=("gfx942",), kfd_hidden=7)) == [("n2", "skip")]
