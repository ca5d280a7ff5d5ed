"""NVIDIA driver version, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._parity import differing
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import (
    Cause,
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    Status,
    ok,
    skip,
    warn,
)
from netdoctor.rules.versions import parse_version

# A driver too old for torch is to be replaced anyway.
BRANCH = Cause("driver-branch", "driver branch differs between {nodes}", follows=("sw.cuda",))
VERSION = Cause("driver-version", "driver differs between {nodes}")


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
        node: gpu.kernel_driver or gpu.driver_version or ""
        for node, gpu in nodes.items()
        if (gpu.devices or gpu.pci) and (gpu.kernel_driver or gpu.driver_version)
    }
    if not versions:
        yield skip("no NVIDIA driver on any node")
        return
    for node in nodes:
        if node not in versions:
            yield skip("no NVIDIA GPU with a driver on this node", node)

    branches = {node: f"{parsed[0]}" for node, text in versions.items() if (parsed := parse_version(text))}
    said: set[str] = set()
    for finding in differing(
        branches,
        "driver branch",
        BRANCH,
        status=Status.WARN,
        why="NCCL may pick other paths there",
        fixes=_install,
        seen=lambda node: _evidence(node, nodes[node]),
    ):
        said.add(finding.target)
        yield finding
    if not said:
        # Within one branch a difference is of little harm, and no reason to touch a node before a launch.
        yield from differing(
            versions,
            "driver",
            VERSION,
            status=Status.WARN,
            why="same branch, so no harm is known",
            fixes=lambda _, wanted: (
                Fix(
                    text=f"bring it to {wanted} at the next maintenance; the job may start",
                    effect="after reboot",
                ),
            ),
            seen=lambda node: _evidence(node, nodes[node]),
        )
    for node in versions:
        gpu = nodes[node]
        module, library = gpu.kernel_driver, gpu.library_driver
        if module and library and module != library and gpu.nvml == "ok":
            yield warn(
                node,
                f"the library on disk is {library}, the loaded module {module}",
                observed=f"library {library}",
                expected=f"library {module}",
                expected_from=ExpectedFrom.DERIVED,
                evidence=_evidence(node, gpu),
                cause=CauseHint(
                    key="driver-upgrade-pending",
                    title="{nodes} {has} a driver upgrade that waits for a restart",
                    culprits=(node,),
                    fixes=(
                        Fix(
                            text="restart the machine, so that module and library agree",
                            commands=(Command(run_on=node, shell="systemctl reboot"),),
                            root=True,
                            reboot=True,
                            effect="after reboot",
                            risk="medium",
                        ),
                    ),
                ),
            )
    if len(set(versions.values())) == 1:
        for node, text in versions.items():
            yield ok(node, f"driver {text}", observed=text)


def _install(node: str, wanted: str) -> tuple[Fix, ...]:
    if not wanted.isdecimal():
        return ()
    return (
        Fix(
            text=f"install a driver of branch {wanted}, by the means that installed this one",
            commands=(
                Command(
                    run_on=node,
                    shell=f"apt-get install --yes nvidia-driver-{wanted}-server  # Ubuntu's name",
                ),
            ),
            root=True,
            reboot=True,
            effect="after reboot",
            risk="medium",
        ),
    )


def _evidence(node: str, gpu: GpuFacts) -> tuple[Evidence, ...]:
    parts = [
        f"module {gpu.kernel_driver or '?'}",
        f"library {gpu.library_driver or '?'}",
        f"NVML {gpu.driver_version or '?'}",
    ]
    return (Evidence(kind="file", where=node, what="/proc/driver/nvidia/version", output=listing(parts)),)
