"""What Ray hands out on a node, against what is there."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import GIB, size
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.ray import RayFacts
from netdoctor.model import DERIVED, HERE, Cause, Finding, run, seen, unknown

GPUS = Cause("ray-gpus", "Ray offers more GPUs than {nodes} {has}")
STORE = Cause("ray-object-store", "Ray's object store on {nodes} is on a disk")
AGAIN = run("ray stop, then ray start: Ray counts the GPUs again", effect="next launch")
ONE = run(
    "ray stop ends all raylets of this machine: then ray start once, or each with its own --num-gpus and "
    "CUDA_VISIBLE_DEVICES",
    effect="next launch",
)
SHM = run(
    "make /dev/shm larger than --object-store-memory, then ray stop and ray start", effect="next launch"
)


@check(
    after=["gpu.visible"], source="https://docs.ray.io/en/releases-2.44.1/ray-core/scheduling/resources.html"
)
def ray_resources(ray: RayFacts, gpu: GpuFacts | None) -> Iterator[Finding]:
    """Ray offers the GPUs that a node has, and keeps its objects in memory.

    Looks at:
        The raylet's command line (its GPUs, the folder of its object store), and NVML's devices. If ray
        start was called twice, the GPUs of all raylets of the cluster on that node. Fewer GPUs may be on
        purpose (``--num-gpus``) and are not reported.

    Matters because:
        Ray counts GPUs once, when it starts. If a GPU is lost later, the next actor still gets its
        number, and ends with "invalid device ordinal". An object store that does not fit into /dev/shm
        goes to /tmp, with only a warning in a log, and is then as slow as that disk.

    Fix:
        First repair the GPU or enlarge /dev/shm, then start Ray there again: it reads both only when it
        starts.
    """
    unread = gpu is None or gpu.nvml in ("error", "no_permission", "mismatch")
    count = len(gpu.devices) if gpu is not None else 0
    if ray.gpus and unread:
        yield unknown(HERE, f"Ray offers {ray.gpus:g} GPUs, but they could not be counted")
    elif ray.gpus and ray.gpus > count:
        more = f" ({ray.raylets} raylets run here)" if ray.raylets > 1 else ""
        yield GPUS.fail(
            f"Ray offers {ray.gpus:g} GPUs, NVML has {count}{more}",
            observed=f"{ray.gpus:g}",
            expected=DERIVED(f"at most {count}"),
            seen=(
                seen("raylet --static_resource_list", f"GPU {ray.gpus:g}{more}"),
                seen("NVML", f"{count} GPUs"),
            ),
            fixes=ONE if ray.raylets > 1 else AGAIN,
        )
    if not ray.object_store_dir:
        yield unknown(HERE, "the raylet's command line does not show where its object store is")
    elif ray.object_store_dir != "/dev/shm":
        capacity = size(ray.object_store_bytes or GIB)
        yield STORE.warn(
            f"its object store of {capacity} is in {ray.object_store_dir}, not in /dev/shm",
            observed=ray.object_store_dir,
            expected="/dev/shm",
            seen=seen("raylet --plasma_directory", ray.object_store_dir),
            fixes=SHM,
        )
