from netdoctor.checks.host.boot import host_boot
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import Status

from ..build import causes, found, host, hosts, tuning


def judged(one: TuningFacts, **machine: object) -> dict[str, tuple[Status, str]]:
    machines = hosts(3) | {"n3": host(3, **machine)}
    findings = list(host_boot({"n1": tuning(), "n2": tuning(), "n3": one}, machines))
    assert set(causes(findings)) <= {"kernel-modules-gone"}
    return {node: (finding.status, finding.summary) for node, finding in found(findings).items()}


def test_modules_that_are_gone_are_named() -> None:
    status, text = judged(tuning(modules_gone=True, reboot_wanted=True))["n3"]
    assert status is Status.WARN
    assert "6.1.0-18-amd64" in text


def test_the_rest_are_words() -> None:
    assert judged(tuning()) == {}
    assert judged(tuning(uptime_s=None)) == {}
    assert judged(tuning(reboot_wanted=True))["n3"][0] is Status.PASS
    assert judged(tuning(uptime_s=1800.0))["n3"] == (
        Status.PASS,
        "started 30 minutes ago; most nodes run for days",
    )
    assert judged(tuning(modules_gone=True), container="docker")["n3"][0] is Status.SKIP
