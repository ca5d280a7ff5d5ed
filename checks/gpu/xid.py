"""Trouble with GPUs that NVIDIA's driver wrote into the kernel log."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks.gpu._gpus import reset
from netdoctor.checks.gpu._xid import GpuError, troubles
from netdoctor.facts.gpu import GpuFacts, KernelLog
from netdoctor.model import HERE, SUSPECTED, Action, Cause, Finding, after_reboot, look, ok, seen, skip
from netdoctor.rules.xid import Need
from netdoctor.text import age

RESET = Cause("gpu-needs-reset", "{nodes} {has} a GPU that needs a reset", action=Action.RESET_GPU)
REBOOT = Cause("gpu-needs-reboot", "{nodes} {has} to be rebooted for a GPU", action=Action.REBOOT)
AGAIN = Cause("gpu-faults-again", "a GPU of {nodes} keeps failing", action=Action.DRAIN)
CODE = Cause(
    "gpu-xid-not-known", "the driver of {nodes} reports an error unknown to netdoctor", action=Action.IGNORE
)
SEE = look("read what the driver wrote", "dmesg -T | grep -E 'NVRM: Xid|SXid'", root=True)
TEST = look("test it, with the node out of service", "dcgmi diag -r 3", root=True)
BOOT = after_reboot("restart the node, with nothing running on it", "systemctl reboot")


@check(
    after=["ssh.login"],
    required=False,
    source="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
)
def gpu_xid(gpu: GpuFacts, log: KernelLog) -> Iterator[Finding]:
    """No GPU has had an error that needs a reset or a reboot.

    Looks at:
        Xid and SXid messages in the kernel log (/dev/kmsg, else the journal) since the node was started
        and the driver was loaded; from driver 565 on also what NVML says each GPU needs. What to do after
        each message is NVIDIA's "immediate action". Errors caused by programs (Xid 13, 31, 43, 45 and
        similar) say nothing about the GPU and are ignored.

    Matters because:
        A GPU in this state ends the next job on it, or makes it hang, although nvidia-smi lists it.

    Fix:
        Reset the GPU, or reboot the node, with nothing running there. If a GPU fails again, take the node
        out of service, test the GPU (dcgmi diag -r 3), and replace it. Driver releases before 565 do not
        report whether a GPU was reset since; there an error of the last day counts, and an older one is a
        warning.
    """
    tells = all(device.recovery is not None for device in gpu.devices)
    if not gpu.devices:
        yield skip("no GPU on this node")
    elif log.refused and not tells:
        why = f"the kernel log may not be read here ({log.refused}): needs root, or the group systemd-journal"
        yield skip(why, gap="the kernel log (needs root)")
    found = [_finding(error) for error in troubles(gpu, log)]
    yield from found
    if gpu.devices and not found and not tells and log.since_s is not None and log.driver_age_s is None:
        back = f"the kernel log of more than {age(log.since_s)} ago, which is lost"
        yield ok(HERE, "no such error in what the kernel log still has", gap=back)


def _finding(error: GpuError) -> Finding:
    healing = (BOOT,) if error.needs is Need.REBOOT else (reset(error.gpu), BOOT)
    cause = REBOOT if error.needs is Need.REBOOT else RESET
    if error.again or error.needs is Need.NONE:
        cause, healing = (AGAIN, (TEST,)) if error.again else (CODE, (SEE,))
    elif not error.certain:
        cause = cause.but(confidence=SUSPECTED)
    say = cause.fail if error.certain or (error.fresh and cause not in (AGAIN, CODE)) else cause.warn
    return say(
        error.summary,
        observed=error.observed,
        expected="no such error",
        seen=seen(error.source, error.text),
        fixes=healing,
    )
