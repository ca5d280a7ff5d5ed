"""Memory errors that a GPU could not correct."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Node
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
)


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
)
def gpu_ecc(node: Node, gpu: GpuFacts) -> Iterator[Finding]:
    """No GPU has met a memory error that it could not correct since the driver was loaded.

    Looks at:
        NVML's volatile count of uncorrected ECC errors on each GPU.

    Matters because:
        The process that touches such memory is ended (Xid 48, 94, 95), and until the GPU is reset
        it may be so again. A GPU that keeps meeting them is to be replaced.

    Fix:
        Reset the GPU with nothing running on it; if the count comes back, drain the node and have
        the board replaced.
    """
    counted = [d for d in gpu.devices if d.ecc_uncorrected is not None]
    if not counted:
        reason = "the GPUs do not count ECC errors" if gpu.devices else "no GPU on this node"
        yield skip(reason, node.id)
        return
    for device in counted:
        if not device.ecc_uncorrected:
            continue
        count = device.ecc_uncorrected
        yield fail(
            node.id,
            f"GPU {device.index} has {count} uncorrected memory error{'s' if count > 1 else ''}",
            observed=str(count),
            expected="0",
            expected_from=ExpectedFrom.CONSTANT,
            evidence=(
                Evidence(
                    kind="probe",
                    where=node.id,
                    what=f"NVML, GPU {device.index}, volatile uncorrected ECC errors",
                    output=str(count),
                ),
            ),
            cause=CauseHint(
                key="gpu-ecc",
                title="{nodes} {has} a GPU with uncorrected memory errors",
                culprits=(node.id,),
                fixes=(
                    Fix(
                        text="reset the GPU, with nothing running on it",
                        commands=(
                            Command(
                                run_on=node.id,
                                shell=f"nvidia-smi --gpu-reset -i {device.index} && "
                                f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {device.index}",
                            ),
                        ),
                        root=True,
                        risk="medium",
                    ),
                ),
            ),
        )
