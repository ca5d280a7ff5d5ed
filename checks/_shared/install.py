"""How a package comes into the job's interpreter, and a driver onto a node."""

import re
import shlex

from netdoctor.facts.software import Requested, SoftwareFacts
from netdoctor.model import Fix, after_reboot, run
from netdoctor.rules.cuda import major

# What is put beside the interpreter of a distribution.
VENV = "~/job-venv"
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,60}")
# What torch's own index serves: https://pytorch.org/get-started/previous-versions/
_BUILD = re.compile(r"cpu|cu\d{2,3}|rocm\d[\d.]{0,8}|xpu")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")  # PEP 508 names
_SPECIFIER = re.compile(r"[0-9A-Za-z.+!*<>=~,_-]{0,200}")
_PATH = re.compile(r"/[\w./+@-]{1,300}")


def is_version(text: str | None) -> bool:
    """Whether it looks like a version, and so may stand in a command."""
    return text is not None and _VERSION.fullmatch(text) is not None


def in_command(python: str) -> str:
    """An interpreter as it may stand in a command: by name where its path is unusual."""
    return python if _PATH.fullmatch(python) else "python3"


def install(
    software: SoftwareFacts,
    package: str,
    version: str | None,
    called: str = "",
    source: str = "",
    options: str = "",
    specifier: str = "",
) -> Fix:
    """pip, run by the job's interpreter; by ``python3`` where its path is unusual.

    package: a plain name. version: from a node, so left out unless it looks like one. called: package and
    version in words. source: where it comes from, in words. options: more of pip's. specifier: plain, where
    there is no version.
    """
    requirement = f"{package}=={version}" if is_version(version) else f"{package}{specifier}"
    python = in_command(software.executable)
    where, first = "the job's interpreter", ""
    of_torch = software.torch is not None and package.startswith(("torch", "nvidia-"))
    is_there = of_torch or software.packages.get(package)
    if software.externally_managed and is_there:  # somebody has put it there already, and it would stay first
        options = f" --break-system-packages{options}"
        where += "; that Python belongs to the distribution, so a virtual environment for the job is better"
    elif software.externally_managed:
        where = f"a new virtual environment, because {python} belongs to the distribution; use"
        where += f" {VENV}/bin/python for the job and with --python"
        first, python = (
            f"{shlex.quote(python)} -m venv --system-site-packages {VENV} && ",
            f"{VENV}/bin/python",
        )
    python = python if first else shlex.quote(python)
    return run(
        f"install {called or requirement}{source} in {where}",
        f"{first}{python} -m pip install{options} '{requirement}'",
        effect="next launch",
        risk="medium",
    )


def install_requested(software: SoftwareFacts, requested: Requested) -> tuple[Fix, ...]:
    """pip, for what the job asks for; nothing where that is no plain name and specifier."""
    if not (_NAME.fullmatch(requested.name) and _SPECIFIER.fullmatch(requested.specifier)):
        return ()
    return (install(software, requested.name, None, specifier=requested.specifier),)


def install_torch(software: SoftwareFacts, version: str | None) -> Fix:
    """torch of this version, ``2.6.0+cu124``."""
    # A local version such as +cu124 is in the index of that build alone.
    build = version.partition("+")[2] if version is not None and is_version(version) else ""
    if _BUILD.fullmatch(build):
        index = f" --index-url https://download.pytorch.org/whl/{build}"
        source = ", from torch's own index or your copy of it"
        return install(software, "torch", version, source=source, options=index)
    source = ", from the source that the other nodes used: no public index has it" if build else ""
    return install(software, "torch", version, source=source)


def install_nccl(software: SoftwareFacts, version: str) -> tuple[Fix, ...]:
    """The wheel for the CUDA of the node's torch; nothing without one, or without a version."""
    cuda = major(software.torch.cuda) if software.torch else None
    if cuda is None or not is_version(version):
        return ()
    return (install(software, f"nvidia-nccl-cu{cuda}", version, called=f"NCCL {version}"),)


def install_driver(branch: int | str, or_newer: str = "") -> Fix:
    """NVIDIA's driver of a branch, ``570``. The node itself says whose packages it takes.

    Ubuntu's own, or for RHEL's family the module of NVIDIA's repository (its driver installation
    guide). Elsewhere no package is called after a branch.
    """
    return after_reboot(
        f"install a driver of branch {branch}{or_newer}, in the same way as the present one",
        '. /etc/os-release; case " $ID $ID_LIKE " in '
        f'*" ubuntu "*) apt-get install --yes nvidia-driver-{branch}-server;; '
        f'*" rhel "*|*" fedora "*) dnf module install -y nvidia-driver:{branch}-dkms;; '
        f'*) echo "branch {branch} as $PRETTY_NAME installs it" >&2; false;; esac',
    )
