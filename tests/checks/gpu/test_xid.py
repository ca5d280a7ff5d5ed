"""Xids and what NVML says a GPU needs, together: by release of the driver, by age, by order of events."""

from typing import Any

import pytest

from netdoctor.checks.gpu.xid import gpu_xid
from netdoctor.facts.gpu import GpuFacts, KernelEvent, KernelLog
from netdoctor.model import Finding, Status

from ..build import causes, said
from ..build_hw import gpu, gpus, no_gpus

HOUR, DAY = 3600.0, 86400.0
NONE, RESET, REBOOT = 0, 1, 2


def event(code: int, age: float = 60.0, index: int = 0, **changes: Any) -> KernelEvent:
    ages = {"first_age_s": age, "last_age_s": age}
    defaults: dict[str, Any] = {"kind": "xid", "device": f"0000:{0x10 + index:02x}:00", "count": 1, **ages}
    return KernelEvent(**{"code": code, **defaults, **changes})


def log(*events: KernelEvent, **changes: Any) -> KernelLog:
    return KernelLog(**{"source": "/dev/kmsg", "driver_age_s": 9 * DAY, "events": events, **changes})


def judged(events: tuple[KernelEvent, ...], recovery: int | None = None, **changes: Any) -> list[Finding]:
    """What is said of two GPUs; recovery is that of the first."""
    other = None if recovery is None else NONE
    facts = gpus(devices=(gpu(0, recovery=recovery), gpu(1, recovery=other)))
    return said(gpu_xid(facts, log(*events, **changes)))


def test_silent_on_healthy_gpus_and_on_errors_of_programs() -> None:
    assert not judged(())
    assert not judged((), NONE)
    of_programs = tuple(event(code, 5.0, count=40) for code in (8, 13, 31, 43, 45, 63, 68, 94, 154))
    assert not judged(of_programs)
    assert not judged(of_programs, NONE)


@pytest.mark.parametrize(
    ("code", "words", "cause"),
    [
        (79, "GPU 0 had Xid 79, the GPU has fallen off the bus, 1 h ago", "gpu-needs-reboot"),
        (95, "GPU 0 had Xid 95, uncontained memory error, 1 h ago", "gpu-needs-reset"),
        (119, "GPU 0 had Xid 119, the GPU's firmware (GSP) does not answer, 1 h ago", "gpu-needs-reset"),
    ],
)
def test_a_driver_that_does_not_tell(code: int, words: str, cause: str) -> None:
    (finding,) = judged((event(code, 1.6 * HOUR),))
    assert (finding.status, finding.summary, finding.observed) == (Status.FAIL, words, f"Xid {code}")
    assert causes([finding]) == {cause: {"n1"}}
    assert finding.evidence[0].output.startswith(f"Xid {code} of 0000:10:00, last 1 h ago")
    assert finding.cause is not None
    assert finding.cause.confidence == "suspected"
    (old,) = judged((event(code, 3 * DAY),))
    assert old.status is Status.WARN
    assert not judged((event(code, 3 * DAY),), driver_age_s=2 * DAY)  # loaded anew since


def test_a_log_that_has_lost_its_beginning_does_not_speak_for_it() -> None:
    (finding,) = judged((), since_s=3 * HOUR, driver_age_s=None)
    assert (finding.status, finding.gap) == (
        Status.PASS,
        "the kernel log of more than 3 h ago, which is lost",
    )
    assert not judged((), since_s=3 * HOUR, driver_age_s=2 * HOUR)
    assert not judged((), NONE, since_s=3 * HOUR, driver_age_s=None)
    assert [f.status for f in judged((event(95),), since_s=3 * HOUR, driver_age_s=None)] == [Status.FAIL]


def test_a_driver_that_tells() -> None:
    (finding,) = judged((event(95),), RESET)
    assert finding.summary == "GPU 0 needs a reset, says the driver (Xid 95, uncontained memory error)"
    assert (finding.status, finding.cause and finding.cause.confidence) == (Status.FAIL, "certain")
    assert finding.cause
    assert finding.cause.fixes[0].text == "reset the GPU, with nothing running there"
    assert "--gpu-reset -i 0" in finding.cause.fixes[0].commands[0].shell
    (finding,) = judged((), REBOOT)
    assert causes([finding]) == {"gpu-needs-reboot": {"n1"}}
    assert not judged((event(95),), NONE), "it was reset since"
    assert [f.status for f in judged((event(95, count=3),), NONE)] == [Status.WARN]
    (finding,) = judged((event(95), event(119, 2 * HOUR)), NONE)
    assert finding.summary.startswith("GPU 0 was repaired 2 times: Xid 95,")


def test_the_drivers_summary_in_the_log() -> None:
    text = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    (finding,) = judged((event(119, 61.0), event(154, 60.0, text=text)))
    assert (finding.status, finding.observed) == (Status.FAIL, "needs a reboot")
    healed = event(154, 30.0, text="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert not judged((event(119, 61.0), healed))
    (finding,) = judged((event(119, 5.0), healed))
    assert finding.summary == "GPU 0 had Xid 119, the GPU's firmware (GSP) does not answer, 5 s ago"


def test_nvlink_messages_say_themselves_whether_they_are_fatal() -> None:
    assert not judged((event(149, text="NETIR_BER_EVENT Nonfatal XC0 i0 Link 09 (0x00000013 0x0)"),))
    (finding,) = judged((event(149, text="NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x004505c6 0x0)"),))
    assert causes([finding]) == {"gpu-needs-reset": {"n1"}}


def test_devices_that_nvml_does_not_list() -> None:
    (finding,) = judged((event(79, index=9),), NONE)
    assert finding.summary.startswith("the GPU at 0000:19:00 had Xid 79")
    fatal = event(20034, kind="sxid", device="0000:c1:00", text="Fatal, Link 30 LTSSM Fault Up")
    (finding,) = judged((fatal, event(19084, kind="sxid", text="Non-fatal, Link 30 AN1 Heartbeat")), NONE)
    assert finding.summary == "NVSwitch 0000:c1:00 reported a fatal error (SXid 20034)"
    assert finding.observed == "SXid 20034"
    assert finding.cause
    assert finding.cause.fixes[0].text == "reset all GPUs, with nothing running there"
    assert finding.cause.fixes[0].commands[0].shell.startswith("nvidia-smi --gpu-reset &&")


def test_a_code_of_a_later_driver_is_said_to_be_unknown() -> None:
    (finding,) = judged((event(999),))
    assert (finding.status, set(causes([finding]))) == (Status.WARN, {"gpu-xid-not-known"})


@pytest.mark.parametrize(
    ("facts", "gap"),
    [
        (gpus(2), "the kernel log (needs root)"),
        (no_gpus(), None),
        (gpus(devices=(gpu(0, recovery=NONE),)), ""),
    ],
)
def test_a_log_that_may_not_be_read(facts: GpuFacts, gap: str | None) -> None:
    findings = list(gpu_xid(facts, KernelLog(refused="EPERM")))
    if gap == "":
        assert not findings  # NVML said what each GPU needs
    else:
        assert [(f.status, f.gap) for f in findings] == [(Status.SKIP, gap)]
