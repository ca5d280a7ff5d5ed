"""The libraries that torch finds, against those that it was built with."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from netdoctor.check import check
from netdoctor.checks._shared.install import install_requested
from netdoctor.checks._shared.text import listing, slug, title_text
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.software import Requested, SoftwareFacts, Unmet
from netdoctor.model import DERIVED, Cause, Finding, Status, in_job, look, seen, skip
from netdoctor.rules.cuda import major
from netdoctor.rules.libraries import breaks_cudnn, is_older, pinned
from netdoctor.rules.packages import applies_to, environment, fits, requirement
from netdoctor.rules.versions import parse_version

AFTER = ("sw.torch",)
MISSING = Cause("torch-requires-missing", "{nodes} lack{s} libraries that torch requires", follows=AFTER)
OLDER = Cause("torch-requires-older", "{nodes} {has} other libraries than torch requires", follows=AFTER)
OTHER_PYTHON = Cause("torch-other-python", "torch of {nodes} is built for another Python than the job's")
NCCL_CUDA = Cause("nccl-cuda", "the NCCL of {nodes} needs a newer driver", verify=("sw.libraries", "sw.nccl"))
CUDNN = Cause("cudnn-overridden", "{nodes} load{s} a cuDNN before torch's own, and torch refuses it")
LIBCUDA = Cause("libcuda-overridden", "{nodes} load{s} an older libcuda before the driver's own")

# What is not met, and the requirement.
Row = tuple[Unmet, Requested]


def requirements(software: SoftwareFacts, host: HostFacts | None) -> Iterator[Finding]:
    """What is missing, or another release than required."""
    here = environment(software, host)
    by_root: dict[str, list[Row]] = defaultdict(list)
    for row in software.unmet or ():
        found = requirement(row.requires)
        if found and applies_to(found[2], here, row.extras):
            root = f"{row.of}[{','.join(row.extras)}]" if row.extras else row.of
            by_root[root].append((replace(row, of=root), Requested(name=found[0], specifier=found[1])))
    for root, rows in by_root.items():
        yield from _of_torch(rows, software) if root == "torch" else _of_package(root, rows, software)


def _of_torch(rows: list[Row], software: SoftwareFacts) -> Iterator[Finding]:
    missing = [one for row, one in rows if row.installed is None]
    if missing:
        yield _finding(MISSING, rows[0][0], missing, "none is installed", software)
    for row, one in rows:
        rule = pinned(one.name, row.version)
        if row.installed is None or rule is None or fits(one.specifier, row.installed) is not False:
            continue
        if is_older(row.installed, row.requires) or rule.newer:
            say = Status.FAIL if rule.ends else Status.WARN
            cause = OLDER.but(key=f"{OLDER.key}-{rule.name.strip('-')}", see=rule.source)
            words = f"{row.installed} is installed: {rule.older}"
            yield _finding(cause, row, [one], words, software, say)


def _of_package(root: str, rows: list[Row], software: SoftwareFacts) -> Iterator[Finding]:
    bad = [
        (row, one)
        for row, one in rows
        if row.installed is None or fits(one.specifier, row.installed) is False
    ]
    if bad:
        title = "{nodes} lack{s} requirements of " + title_text(root)
        cause = Cause(f"package-{slug(root)}-requires", title, follows=AFTER)
        have = [f"{one.name} {row.installed}" if row.installed else f"no {one.name}" for row, one in bad]
        yield _finding(cause, bad[0][0], [one for _, one in bad], f"here is {listing(have)}", software)


def _finding(
    cause: Cause,
    row: Unmet,
    required: list[Requested],
    words: str,
    software: SoftwareFacts,
    status: Status = Status.WARN,
) -> Finding:
    requirements = listing([f"{one.name}{one.specifier}" for one in required], 4)
    return cause.say(
        status,
        f"{row.of} {row.version} requires {requirements}; {words}",
        observed=words.partition(":")[0],
        expected=DERIVED(requirements),
        seen=seen(f"Requires-Dist of {row.of} {row.version}", row.requires, "file"),
        fixes=[fix for requirement in required[:4] for fix in install_requested(software, requirement)],
    )


def torch_python(software: SoftwareFacts) -> Iterator[Finding]:
    """An extension of torch that the interpreter cannot load, as behind a PYTHONPATH of another one."""
    if software.torch and software.torch.built_for:
        tags = listing(software.torch.built_for, 3)
        yield OTHER_PYTHON.fail(
            f"torch in {software.torch.path} is built for {tags}, and the interpreter is {software.version}: "
            "import ends with \"No module named 'torch._C'\"",
            observed=tags,
            expected=DERIVED(f"a build for Python {'.'.join(software.version.split('.')[:2])}"),
            seen=seen(software.torch.path, tags, "file"),
            fixes=look("see which folder is first, and name the right interpreter", "echo $PYTHONPATH"),
        )


def nccl_cuda(software: SoftwareFacts, gpu: GpuFacts) -> Iterator[Finding]:
    """An NCCL whose CUDA runtime, which is linked into it, needs a newer driver than torch's own does; where
    the driver is too old for torch as well, sw.cuda says so."""
    offered, torch = major(gpu.cuda_driver), major(software.torch.cuda if software.torch else None)
    for first in software.nccl[:1]:
        needs = major(first.cuda)
        if needs and offered and needs > offered and needs != torch:
            yield NCCL_CUDA.fail(
                f"NCCL {first.version or '?'} is built for CUDA {first.cuda}, and the driver offers "
                f"{gpu.cuda_driver}: its first call ends with an unhandled CUDA error",
                observed=f"CUDA {gpu.cuda_driver}",
                expected=DERIVED(f"CUDA {needs}.0 or newer, or an NCCL for CUDA {offered}"),
                seen=seen(f"{first.path} ({first.origin})", f"built for CUDA {first.cuda}", "file"),
                fixes=look("see which packages bring an NCCL; keep torch's own", "pip list | grep -i nccl"),
            )


def overridden(software: SoftwareFacts, module: str | None) -> Iterator[Finding]:
    """cuDNN and libcuda of the environment that do not fit. module: release of the driver's module."""
    built = next((v for n, v in software.cuda_packages.items() if n.startswith("nvidia-cudnn-cu")), None)
    for shadow in software.shadows:
        where = f"{shadow.origin} gives {shadow.name} {shadow.version} ({shadow.path})"
        unset = in_job(f"remove its folder from {shadow.origin}", f"unset {shadow.origin}", persistent=True)
        common: dict[str, Any] = {
            "observed": f"{shadow.version} from {shadow.origin}",
            "seen": seen(shadow.origin, shadow.path, "file"),
            "fixes": unset if shadow.origin in ("LD_PRELOAD", "LD_LIBRARY_PATH") else (),
        }
        if shadow.name.startswith("libcudnn") and breaks_cudnn(shadow.version, built):
            words = f'{where}, torch is built with {built}: it ends with "cuDNN version incompatibility"'
            yield CUDNN.fail(words, expected=DERIVED(f"cuDNN {built} or newer"), **common)
        version, driver = parse_version(shadow.version), parse_version(module)
        if shadow.name.startswith("libcuda.") and version and driver and version < driver:
            # https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
            words = f"{where}, the driver's module is {module}: CUDA may not start (error 803)"
            yield LIBCUDA.warn(words, expected=DERIVED(f"the driver's own, {module}"), **common)


@check(
    after=["sw.start"],
    required=False,
    source="https://packaging.python.org/en/latest/specifications/core-metadata/#requires-dist-multiple-use",
)
def sw_libraries(software: SoftwareFacts, host: HostFacts | None, gpu: GpuFacts | None) -> Iterator[Finding]:
    """torch, and the packages that the job needs, find the libraries that their metadata require.

    Looks at:
        Requires-Dist of torch and of packages named with ``--packages`` or in ``--requirements``,
        compared with what is installed (like ``pip check``, but for these only). The CUDA of the first
        NCCL and that of the driver; libcuda and cuDNN in LD_LIBRARY_PATH or LD_PRELOAD; the Python for
        which torch's extension is built. Of the versions that torch pins only NVIDIA's libraries and
        triton are reported, and NVIDIA's only if they are older: newer ones are compatible.

    Matters because:
        A later ``pip install`` replaces what torch was linked with, and nothing warns at the next start.
        Then comes an undefined symbol at import, "cuDNN version incompatibility" at the first layer, or
        an NCCL for which the driver is too old.

    Fix:
        Install what is required, or unset the variable that puts another library first.
    """
    if software.torch is None and not software.unmet:
        yield skip("no torch here, and no requested package requires anything")
        return
    yield from requirements(software, host)
    yield from torch_python(software)
    if gpu is not None:
        yield from nccl_cuda(software, gpu)
    yield from overridden(software, gpu.kernel_driver if gpu else None)
