"""The libraries that torch finds, against those that it was built with."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._libraries import nccl_cuda, overridden, requirements, torch_python
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import Finding, skip


@check(
    after=["ssh.login"],
    required=False,
    source="https://packaging.python.org/en/latest/specifications/core-metadata/#requires-dist-multiple-use",
)
def sw_libraries(software: SoftwareFacts, host: HostFacts | None, gpu: GpuFacts | None) -> Iterator[Finding]:
    """torch, and the packages that the job asks for, find the libraries that their metadata require.

    Looks at:
        Requires-Dist of torch's own metadata and of packages named with ``--packages`` or in
        ``--requirements``, against what is installed beside them (as ``pip check`` does, for these alone);
        the CUDA that the first NCCL is built for against the driver's; libcuda and cuDNN in LD_LIBRARY_PATH
        or LD_PRELOAD; the Python that torch's extension is built for. Of what torch pins only NVIDIA's
        libraries and triton are told, and NVIDIA's only where they are older: newer ones are compatible.

    Matters because:
        A later ``pip install`` replaces what torch was linked against, without a word from pip at the next
        start: an undefined symbol at import, "cuDNN version incompatibility" at the first layer, or an NCCL
        that the driver is too old for.

    Fix:
        Install what is required, or unset the variable that puts another library in front.
    """
    if software.torch is None and not software.unmet:
        yield skip("no torch here, and no package that was asked for requires anything")
        return
    yield from requirements(software, host)
    yield from torch_python(software)
    if gpu is not None:
        yield from nccl_cuda(software, gpu)
    yield from overridden(software, gpu.kernel_driver if gpu else None)
