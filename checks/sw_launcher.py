"""What the launcher and the container image that were named find on the nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._launching import images, pdsh, programs
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.launching import LaunchFacts
from netdoctor.facts.software import Job
from netdoctor.model import Finding, skip


@check(required=False, source="https://docs.open-mpi.org/en/v5.0.x/launching-apps/prerequisites.html")
def sw_launcher(
    nodes: Mapping[str, LaunchFacts], gpus: Mapping[str, GpuFacts] | None, job: Job
) -> Iterator[Finding]:
    """The launcher and the container image that were named are there, alike, on every node.

    Looks at:
        With ``--launcher``: its programs on the PATH of what SSH starts (no login shell's) and beside the
        job's interpreter; for mpirun also orted, prted and hydra_pmi_proxy, which it starts on the others;
        for pdsh and DeepSpeed whether pdsh has a module for ssh, and which one it takes. With ``--image``:
        digest or id of the image in the stores of docker and podman, read as files, and whether containers
        get NVIDIA's GPUs: docker's runtimes, nvidia-ctk, CDI files. Nothing that was not named is judged.

    Matters because:
        mpirun ends with "orted: command not found", pdsh tries rsh, and a tag that was moved gives nodes
        other code, each only once the job starts.

    Fix:
        Install it everywhere, or put its folder on the PATH that a shell has without a login; pull the image
        by its digest.
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
