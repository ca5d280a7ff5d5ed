"""Facts about GPUs of AMD, and which accelerators of others there are, from sysfs and files."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """A board to compute on; graphics of processors and of BMCs are none. driver: the bound one, or None.

    partition: of its compute units, ``SPX`` where it is one GPU; empty where it cannot be partitioned.
    """

    address: str
    device_id: str
    driver: str | None = None
    vram_bytes: int | None = None
    vbios: str = ""
    partition: str = ""


@fact("accelerators")
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorFacts:
    """What a node says of accelerators that NVML does not know.

    amd: boards on the PCI bus. kfd: architecture of each GPU that the driver offers for computing,
    ``gfx942``; kfd_hidden: topology nodes that may not be read, as where a device cgroup forbids a GPU.
    amdgpu: version of the driver's module, None where it is the kernel's own, which has none; rocm: of
    /opt/rocm; rccl: the number in the real name of librccl.so.1. may_compute: whether /dev/kfd may be opened
    by its mode, None where there is none. others: how many of each other kind.
    """

    amd: tuple[AmdGpu, ...] = ()
    kfd: tuple[str, ...] = ()
    kfd_hidden: int = 0
    amdgpu: str | None = None
    rocm: str | None = None
    rccl: str | None = None
    may_compute: bool | None = None
    others: dict[str, int] = field(default_factory=dict)
