"""NVIDIA driver version, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.install import install_driver
from netdoctor.checks._shared.parity import differing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import DERIVED, Cause, Evidence, Finding, Fix, Status, after_reboot, seen, skip, unknown
from netdoctor.rules.versions import parse_version

# A driver too old for torch is to be replaced anyway.
BRANCH = Cause("driver-branch", "driver branch differs between {nodes}", follows=("sw.cuda",))
VERSION = Cause("driver-version", "driver differs between {nodes}")
PENDING = Cause("driver-upgrade-pending", "{nodes} {has} a driver upgrade that needs a restart")
RESTART = after_reboot("restart the machine, so that module and library agree", "systemctl reboot")


@check(
    after=["ssh.login", "gpu.visible"],
    source="https://docs.nvidia.com/datacenter/tesla/drivers/releases.html",
    expects={"gpu.driver": str},
)
def gpu_driver(nodes: Mapping[str, GpuFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """Every node runs the same NVIDIA driver, and its library fits the loaded module.

    Looks at:
        The version of the loaded kernel module and of libnvidia-ml.so, and both on the other nodes.

    Matters because:
        Driver branches differ in NVLink, peer memory and CUDA features, and so in the paths that NCCL
        picks. If the library is newer than the module, new processes cannot use the GPUs until the module
        is reloaded.

    Fix:
        Install the driver of most nodes on the nodes that differ, then restart them.
    """
    versions = {
        node: version
        for node, gpu in nodes.items()
        if (version := gpu.kernel_driver or gpu.driver_version) and (gpu.devices or gpu.pci)
    }
    if not versions and not any(gpu.devices for gpu in nodes.values()):
        yield skip("no NVIDIA driver on any node")
        return

    def evidence(node: str) -> Evidence:
        gpu = nodes[node]
        parts = f"module {gpu.kernel_driver or '?'}, library {gpu.library_driver or '?'}"
        return seen("/proc/driver/nvidia/version", f"{parts} and NVML {gpu.driver_version or '?'}", "file")

    def install(_: str, branch: str) -> Fix:
        return install_driver(branch)

    def wait(_: str, release: str) -> Fix:
        text = f"install {release} at the next maintenance; the job may start"
        return Fix(text=text, effect="after reboot")

    for node, gpu in nodes.items():
        if node not in versions and gpu.devices:
            yield unknown(node, "the version of the NVIDIA driver could not be read")
        elif node not in versions:
            yield skip("no NVIDIA GPU with a driver on this node", node)
    expectations = expect.for_values("gpu.driver", versions) if expect else {}
    parsed = {node: parse_version(text) for node, text in versions.items() if node not in expectations}
    branches = {node: f"{version[0]}" for node, version in parsed.items() if version}
    warn, why = Status.WARN, "NCCL may choose other paths there"
    other_branch = list(
        differing(
            branches, "driver branch", BRANCH, status=warn, why=why, evidence_of=evidence, fixes=install
        )
    )
    yield from other_branch
    odd = {finding.target for finding in other_branch}
    # Within one branch a difference is of little harm, and no reason to touch a node before a launch.
    why = "same branch, no problem is known"
    left = {node: version for node, version in versions.items() if node in expectations or node not in odd}
    yield from differing(
        left, "driver", VERSION, evidence_of=evidence, fixes=wait, key="gpu.driver", expect=expect,
        status=warn, why=why, report_equal=True,
    )  # fmt: skip
    for node in versions:
        module, library = nodes[node].kernel_driver, nodes[node].library_driver
        if module and library and module != library and nodes[node].nvml == "ok":
            yield PENDING.warn(
                f"the library on disk is {library}, the loaded module {module}",
                at=node,
                observed=f"library {library}",
                expected=DERIVED(f"library {module}"),
                seen=evidence(node),
                fixes=RESTART,
            )
