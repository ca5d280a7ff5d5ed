"""What the launcher and the container image that were named find on the nodes."""

import re
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.launching import LaunchFacts, Program
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    CONFIG,
    DERIVED,
    Cause,
    Finding,
    Status,
    in_job,
    look,
    run,
    seen,
    skip,
    unknown,
)

MISSING = Cause("launcher-missing", "the launcher's programs are missing on {nodes}")
NOWHERE = Cause("launcher-nowhere", "the launcher's programs are missing on all nodes")
RCMD = Cause("pdsh-no-ssh", "pdsh of {nodes} has no module for ssh")
DEFAULT = Cause("pdsh-other-rcmd", "pdsh of {nodes} does not use ssh by itself")
VERSION = Cause("launcher-version", "the launcher differs between {nodes}")
TOOLKIT = Cause("container-toolkit", "{nodes} {has} GPUs and no NVIDIA container toolkit")
ABSENT = Cause("image-missing", "{nodes} {has} no copy of the image")
IMAGE = Cause("image-differs", "{nodes} {has} another image of that name")
# Where the program is started once, on one machine, and the other nodes need nothing of it.
THEN = {
    "docker": "configure docker with it: nvidia-ctk runtime configure --runtime=docker, and restart docker "
    "(without live-restore this ends running containers)",
    "podman": "write the CDI file with it: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
}
ONE_NODE = ("pdsh", "deepspeed", "srun")
BY_PYTHON = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}


def programs(nodes: Mapping[str, LaunchFacts], job: Job) -> Iterator[Finding]:
    """The launcher's programs on the PATH of what SSH starts."""
    for node in (node for node, facts in nodes.items() if not facts.programs):
        yield unknown(node, f"it is not known whether the node has {job.launcher}")
    reporting = {node: facts for node, facts in nodes.items() if facts.programs}
    found = {node: _usable(facts, job.launcher or "") for node, facts in reporting.items()}
    present = {node: program for node, program in found.items() if program}
    name = "pdsh" if job.launcher == "deepspeed" else job.launcher or ""
    where = "on the PATH of what SSH starts"
    if not present and reporting:
        text = "install it, or add its folder to PATH"
        if module := BY_PYTHON.get(name):
            text = f"start it as python -m {module}, or by its full path"
        yield NOWHERE.warn(
            f"{name} is {where} on no node, nor beside the job's Python",
            at=CLUSTER,
            culprits=tuple(reporting),
            expected=DERIVED(name),
            fixes=look(text),
        )
    elif job.launcher not in ONE_NODE:
        see_path = "see the PATH of a command that SSH starts, and add the folder to it"
        for node in (node for node in reporting if node not in present):
            yield MISSING.fail(
                f"{name} is not {where}, and on {listing(present, 3)} it is",
                at=node,
                observed="not found",
                expected=DERIVED(name),
                fixes=look(see_path, "echo $PATH"),
            )
        versions = {node: version for node, one in present.items() if (version := _version(one))}
        why = "its programs on different nodes may not understand each other"
        yield from differing(versions, name, VERSION, status=Status.WARN, why=why)


def _usable(facts: LaunchFacts, launcher: str) -> Program | None:
    """Return the program that a node has to have, best one whose version is known; None without one."""
    programs = [one for one in facts.programs if launcher != "deepspeed" or one.name == "pdsh"]
    found = [one for one in programs if one.path or one.beside]
    return next((one for one in found if one.said), found[0]) if found else None


def _version(found: Program) -> str | None:
    """``4.1.4`` of ``mpirun (Open MPI) 4.1.4``, ``22.05.8`` of ``slurm 22.05.8``."""
    match = re.search(r"\d+\.\d+(?:\.\d+)?", found.said)
    return match[0] if match else None


def pdsh(node: str, facts: LaunchFacts, launcher: str) -> Iterator[Finding]:
    """Whether pdsh reaches nodes by ssh. DeepSpeed asks it to; by hand PDSH_RCMD_TYPE does."""
    # pdsh-2.34 (+readline+debug)\nrcmd modules: ssh,rsh,exec (default: rsh)
    output = next((one.said for one in facts.programs if one.name == "pdsh" and one.path), "")
    modules = re.search(r"rcmd modules: ([\w,-]+) \(default: (\w+)\)", output)
    if modules is None:
        return
    evidence = seen("pdsh -V", modules[0])
    if "ssh" not in modules[1].split(","):
        fix = run("install its module for ssh (pdsh-rcmd-ssh, if that is a separate package)")
        text = f"pdsh knows {modules[1]}, but not ssh"
        yield RCMD.fail(text, at=node, observed=modules[1], expected=DERIVED("ssh"), seen=evidence, fixes=fix)
    elif launcher == "pdsh" and (used := facts.pdsh_rcmd or modules[2]) != "ssh":
        does = "runs commands on this machine only" if used == "exec" else f"asks for {used}d on every node"
        yield DEFAULT.warn(
            f"pdsh would use {used}, which {does}",
            at=node,
            observed=used,
            expected=DERIVED("ssh"),
            seen=evidence,
            fixes=in_job("make it use ssh", "export PDSH_RCMD_TYPE=ssh", persistent=True),
        )


def images(nodes: Mapping[str, LaunchFacts], job: Job, with_gpus: set[str]) -> Iterator[Finding]:
    """One image of that name on all nodes, and a way for containers to get at GPUs."""
    digests: dict[str, str] = {}
    stores: dict[str, str] = {}
    for node, facts in nodes.items():
        if facts.images:
            stores[node], digests[node] = next(iter(facts.images.items()))
        elif facts.unread:
            root = "needs root: " if "EACCES" in facts.unread[0] else ""
            yield unknown(node, f"whether it has {job.image} could not be read: {root}{facts.unread[0]}")
        elif facts.runtimes and facts.stores:
            yield ABSENT.warn(
                f"{job.image} is not here: {facts.runtimes[0]} will download it when the job starts",
                at=node,
                observed="not there",
                expected=CONFIG(job.image or ""),
            )
        else:
            yield unknown(node, f"no store of docker or podman is here to search for {job.image}")
        if node in with_gpus and facts.runtimes and not facts.toolkit:
            yield TOOLKIT.fail(
                "no NVIDIA runtime of docker, no nvidia-ctk and no CDI file: a container gets no GPU",
                at=node,
                observed="none",
                expected=CONFIG("the NVIDIA container toolkit"),
                fixes=run(
                    f"install nvidia-container-toolkit, then {THEN.get(facts.runtimes[0], THEN['docker'])}",
                    root=True,
                ),
            )
    for store in dict.fromkeys(stores.values()):  # stores name the same image differently
        same = {node: digest for node, digest in digests.items() if stores[node] == store}
        yield from differing(
            same, job.image or "", IMAGE, why="the job would run other code there", report_equal=True
        )


@check(required=False, source="https://docs.open-mpi.org/en/v5.0.x/launching-apps/prerequisites.html")
def sw_launcher(
    nodes: Mapping[str, LaunchFacts], gpus: Mapping[str, GpuFacts] | None, job: Job
) -> Iterator[Finding]:
    """The launcher and the container image that were named are the same on every node.

    Looks at:
        With ``--launcher``: its programs in the PATH of commands that SSH starts (not of a login shell),
        and next to the job's interpreter. For mpirun also orted, prted and hydra_pmi_proxy, which it
        starts on the other nodes. For pdsh and DeepSpeed whether pdsh has a module for ssh, and which
        module it uses. With ``--image``: digest or id of the image in the stores of docker and podman,
        read as files, and whether containers get NVIDIA GPUs (docker's runtimes, nvidia-ctk, CDI files).
        Nothing else is judged.

    Matters because:
        mpirun ends with "orted: command not found", pdsh tries rsh, and a tag that was moved gives some
        nodes other code. All of it shows only when the job starts.

    Fix:
        Install it everywhere, or add its folder to the PATH of shells without a login. Pull the image by
        its digest.
    """
    if not nodes or not (job.launcher or job.image):
        yield skip("no launcher and no image was named (--launcher, --image)")
        return
    if job.launcher:
        yield from programs(nodes, job)
        for node, facts in nodes.items():
            yield from pdsh(node, facts, job.launcher)
    if job.image:
        yield from images(nodes, job, {node for node, gpu in (gpus or {}).items() if gpu.devices})
