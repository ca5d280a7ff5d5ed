"""NVIDIA driver version, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._parity import differing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import DERIVED, Cause, Finding, Status, after_reboot, ok, run, seen, skip, unknown
from netdoctor.rules.versions import parse_version

# A driver too old for torch is to be replaced anyway.
BRANCH = Cause("driver-branch", "driver branch differs between {nodes}", follows=("sw.cuda",))
VERSION = Cause("driver-version", "driver differs between {nodes}")
PENDING = Cause("driver-upgrade-pending", "{nodes} {has} a driver upgrade that waits for a restart")


@check(
    after=["ssh.login", "gpu.visible"],
    source="https://docs.nvidia.com/datacenter/tesla/drivers/releases.html",
)
def gpu_driver(nodes: Mapping[str, GpuFacts]) -> Iterator[Finding]:
    """Every node runs the same NVIDIA driver, and its library fits the loaded module.

    Looks at:
        The version of the loaded kernel module, the version of libnvidia-ml.so, and the versions
        on the other nodes.

    Matters because:
        Nodes on different driver branches differ in NVLink, peer memory and CUDA features, and so
        in the paths that NCCL picks; a library that is newer than the module stops new processes
        from reaching the GPUs until the module is reloaded.

    Fix:
        Install the majority's driver on the nodes that differ, then restart them.
    """
    versions = {
        node: version
        for node, gpu in nodes.items()
        if (version := gpu.kernel_driver or gpu.driver_version) and (gpu.devices or gpu.pci)
    }
    if not versions and not any(gpu.devices for gpu in nodes.values()):
        yield skip("no NVIDIA driver on any node")
        return
    evidence = {}
    for node, gpu in nodes.items():
        parts = f"module {gpu.kernel_driver or '?'}, library {gpu.library_driver or '?'}"
        parts += f" and NVML {gpu.driver_version or '?'}"
        evidence[node] = seen("/proc/driver/nvidia/version", parts, "file")
        if node not in versions and gpu.devices:
            yield unknown(node, "the version of the NVIDIA driver could not be read")
        elif node not in versions:
            yield skip("no NVIDIA GPU with a driver on this node", node)

    branches = {node: f"{parsed[0]}" for node, text in versions.items() if (parsed := parse_version(text))}
    apart = differing(
        branches,
        "driver branch",
        BRANCH,
        status=Status.WARN,
        why="NCCL may pick other paths there",
        seen=lambda node: evidence[node],
        fixes=lambda _, wanted: after_reboot(
            f"install a driver of branch {wanted}, by the means that installed this one",
            f"apt-get install --yes nvidia-driver-{wanted}-server  # Ubuntu's name",
        ),
    )
    # Within one branch a difference is of little harm, and no reason to touch a node before a launch.
    yield from list(apart) or differing(
        versions,
        "driver",
        VERSION,
        status=Status.WARN,
        why="same branch, so no harm is known",
        seen=lambda node: evidence[node],
        fixes=lambda _, wanted: run(
            f"bring it to {wanted} at the next maintenance; the job may start", effect="after reboot"
        ),
    )
    for node in versions:
        module, library = nodes[node].kernel_driver, nodes[node].library_driver
        if module and library and module != library and nodes[node].nvml == "ok":
            yield PENDING.warn(
                f"the library on disk is {library}, the loaded module {module}",
                at=node,
                observed=f"library {library}",
                expected=f"library {module}",
                expected_from=DERIVED,
                seen=evidence[node],
                fixes=after_reboot(
                    "restart the machine, so that module and library agree", "systemctl reboot"
                ),
            )
    if len(set(versions.values())) == 1:
        for node, text in versions.items():
            yield ok(node, f"driver {text}", observed=text)
