"""Launchers and images that were named."""

from typing import Any

from netdoctor.checks.sw.launcher import sw_launcher
from netdoctor.facts.launching import LaunchFacts, Program
from netdoctor.model import Status

from ..build import causes, found, job, names
from ..build_hw import gpus, no_gpus

PDSH = "pdsh-2.34 (+readline+debug)\nrcmd modules: {} (default: {})\nmisc modules: genders\n"


def facts(*programs: Program, **more: Any) -> LaunchFacts:
    return LaunchFacts(programs=programs, **more)


def program(name: str, said: str = "", path: str | None = "/usr/bin", beside: str | None = None) -> Program:
    return Program(name=name, path=path and f"{path}/{name}", beside=beside, said=said)


def judged(
    launcher: str | None, *nodes: LaunchFacts, image: str | None = None, with_gpus: bool = True
) -> Any:
    every = dict(zip(names(len(nodes)), nodes, strict=True))
    cards = {node: gpus() if with_gpus else no_gpus() for node in every}
    return list(sw_launcher(every, cards, job(launcher=launcher, image=image)))


def test_only_what_was_named_is_judged() -> None:
    (finding,) = judged(None, facts(), facts())
    assert finding.status is Status.SKIP
    (finding,) = sw_launcher({}, None, job(launcher="pdsh"))
    assert finding.status is Status.SKIP


def test_programs() -> None:
    mpi = program("mpirun", "mpirun (Open MPI) 4.1.4\n")
    none = Program(name="mpirun")
    assert not judged("mpirun", facts(mpi), facts(mpi))
    assert causes(judged("mpirun", facts(mpi), facts(mpi), facts(none))) == {"launcher-missing": {"n3"}}
    # What mpirun starts on other nodes is enough there.
    assert not judged("mpirun", facts(mpi), facts(none, program("orted")))
    other = program("mpirun", "mpirun (Open MPI) 5.0.7\n")
    assert causes(judged("mpirun", facts(mpi), facts(mpi), facts(other))) == {"launcher-version": {"n3"}}
    assert causes(judged("mpirun", facts(none), facts(none))) == {"launcher-nowhere": {"n1", "n2"}}
    beside = program("torchrun", path=None, beside="/opt/v/bin/torchrun")
    assert not judged("torchrun", facts(beside), facts(program("torchrun")))
    (finding,) = judged("torchrun", facts(Program(name="torchrun")))
    assert finding.status is Status.WARN
    srun = program("srun", "slurm 22.05.8\n")
    assert not judged("srun", facts(srun), facts(Program(name="srun")))


def test_a_node_that_says_nothing_of_the_launcher() -> None:
    mpi = program("mpirun", "mpirun (Open MPI) 4.1.4\n")
    (finding,) = judged("mpirun", facts(mpi), facts(mpi), facts())
    assert (finding.status, finding.target) == (Status.UNKNOWN, "n3")
    assert [one.status for one in judged("mpirun", facts(), facts())] == [Status.UNKNOWN] * 2


def test_pdsh() -> None:
    def said(modules: str, default: str, launcher: str = "pdsh", **more: Any) -> dict[str, set[str]]:
        return causes(judged(launcher, facts(program("pdsh", PDSH.format(modules, default)), **more)))

    assert said("ssh,rsh,exec", "ssh") == {}
    assert said("ssh,rsh,exec", "rsh") == {"pdsh-other-rcmd": {"n1"}}
    assert said("ssh,rsh,exec", "rsh", pdsh_rcmd="ssh") == {}
    assert said("ssh,exec", "ssh", pdsh_rcmd="exec") == {"pdsh-other-rcmd": {"n1"}}
    assert said("rsh,exec", "rsh") == {"pdsh-no-ssh": {"n1"}}
    # DeepSpeed asks for ssh by itself.
    assert said("ssh,rsh", "rsh", "deepspeed") == {}
    assert said("rsh", "rsh", "deepspeed") == {"pdsh-no-ssh": {"n1"}}
    assert not judged("pdsh", facts(program("pdsh", "what is this")))
    pdsh = program("pdsh", PDSH.format("ssh,rsh,exec", "rsh"))
    for asked, words in (
        (None, "rsh, which asks for rshd on every node"),
        ("exec", "exec, which runs commands on this machine only"),
    ):
        (finding,) = judged("pdsh", facts(pdsh, pdsh_rcmd=asked))
        assert finding.summary == f"pdsh would use {words}"


STORE = "/var/lib/docker/image/overlay2/repositories.json"
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def test_images() -> None:
    def node(digest: str | None = A, **more: Any) -> LaunchFacts:
        there = {STORE: digest} if digest else {}
        usual: dict[str, Any] = {
            "runtimes": ("docker",),
            "toolkit": ("/usr/bin/nvidia-ctk",),
            "stores": (STORE,),
        }
        return LaunchFacts(images=there, **{**usual, **more})

    def said(*nodes: LaunchFacts, **more: Any) -> dict[str, set[str]]:
        return causes(judged(None, *nodes, image="x:1", **more))

    assert said(node(), node()) == {}
    assert said(node(), node(), node(B)) == {"image-differs": {"n3"}}
    assert said(node(), node(None)) == {"image-missing": {"n2"}}
    assert said(node(toolkit=())) == {"container-toolkit": {"n1"}}
    for runtime, words in (
        ("docker", "--runtime=docker"),
        ("podman", "cdi generate"),
        ("other", "nvidia-ctk"),
    ):
        (lacking,) = [
            one.cause for one in judged(None, node(toolkit=(), runtimes=(runtime,)), image="x:1") if one.cause
        ]
        (fix,) = lacking.fixes
        assert (words in fix.text, fix.commands) == (True, ()), "nvidia-ctk is what is not there"
    assert said(node(toolkit=()), with_gpus=False) == {}
    unread = judged(None, node(), node(None, stores=(), unread=(f"{STORE}: EACCES",)), image="x:1")
    assert found(unread)["n2"].status is Status.UNKNOWN
    assert "needs root" in found(unread)["n2"].summary
    assert found(judged(None, node(None, stores=(), runtimes=()), image="x:1"))["n1"].status is Status.UNKNOWN
    # The stores of docker and of podman name an image differently.
    podman = LaunchFacts(
        images={"/var/lib/containers": B}, runtimes=("podman",), toolkit=("/etc/cdi/nvidia.yaml",)
    )
    assert said(node(), podman) == {}
