from netdoctor.checks.sw.parity import sw_parity
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import Status

from ..build import cause, causes, found, job
from ..build_hw import software


def nodes(*versions: str | None) -> dict[str, SoftwareFacts]:
    return {
        f"n{i}": software(packages={"flash-attn": version}) for i, version in enumerate(versions, start=1)
    }


ASKED = job(packages=("flash-attn",))


def test_skips_when_nothing_was_asked() -> None:
    (finding,) = sw_parity(nodes("2.5"), job())
    assert finding.status is Status.SKIP


def test_silent_when_equal() -> None:
    assert not list(sw_parity(nodes("2.5", "2.5"), ASKED))
    assert not list(sw_parity(nodes("2.5"), ASKED))


def test_names_missing_and_different() -> None:
    findings = list(sw_parity(nodes("2.5", "2.5", None, "2.4"), ASKED))
    assert causes(findings) == {
        "package-flash-attn-missing": {"n3"},
        "package-flash-attn-version": {"n4"},
    }
    shell = cause(findings, "package-flash-attn-version").fixes[0].commands[0].shell
    assert shell.endswith("-m pip install 'flash-attn==2.5'")


def test_on_no_node_is_a_warning() -> None:
    findings = found(sw_parity(nodes(None, None), ASKED))
    assert {f.status for f in findings.values()} == {Status.WARN}


def test_a_tie_blames_both() -> None:
    assert causes(sw_parity(nodes("1", "2"), ASKED)) == {"package-flash-attn-version": {"n1", "n2"}}


def test_each_package_gets_its_own_fix() -> None:
    facts = {
        f"n{i}": software(packages={"a": "1" if i < 3 else "2", "b": "3" if i < 3 else "4"})
        for i in (1, 2, 3)
    }
    shells = [
        fix.commands[0].shell
        for f in sw_parity(facts, job(packages=("a", "b")))
        for fix in (f.cause.fixes if f.cause else ())
    ]
    assert [shell.rsplit(" ", 1)[1] for shell in shells] == ["'a==1'", "'b==3'"]


def test_what_torchs_wheel_brings_along_follows_from_torch() -> None:
    facts = {
        f"n{i}": software(packages={"torch": v, "nvidia-nccl-cu12": v, "flash-attn": v})
        for i, v in enumerate(("2", "2", "1"), start=1)
    }
    follows = {
        f.cause.key: f.cause.follows
        for f in sw_parity(facts, job(packages=("torch", "nvidia-nccl-cu12", "flash-attn")))
        if f.cause
    }
    assert follows == {
        "package-torch-version": ("sw.torch",),
        "package-nvidia-nccl-cu12-version": ("sw.torch", "sw.nccl"),
        "package-flash-attn-version": (),
    }


def test_a_version_that_cannot_be_read_is_unknown_there() -> None:
    findings = found(sw_parity(nodes("2.5", "", "2.5"), ASKED))
    assert {target: f.status for target, f in findings.items()} == {"n2": Status.UNKNOWN}


def test_a_package_that_was_not_looked_for_is_not_missing() -> None:
    facts = nodes("2.5", "2.5") | {"n3": software(packages={})}
    assert {f.target: f.status for f in sw_parity(facts, ASKED)} == {"n3": Status.UNKNOWN}
