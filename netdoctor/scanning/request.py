"""What a scan is asked for, whoever asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from netdoctor.inventory import Target
from netdoctor.report import LAST


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """One scan. Fields are named as the options of `netdoctor scan`, which describes them.

    hosts: what names the nodes: files, ``-``, names. targets: the nodes of an earlier report instead, and
    source that report's file. only, skip: globs on check ids. packages: names, with commas between them.
    timeout (per node), deadline, budget: seconds. environ: of the shell that the job would be launched from.
    save: where the report goes, None for nowhere.
    """

    hosts: tuple[str, ...] = ()
    targets: tuple[Target, ...] | None = None
    source: Path | None = None
    format: str = "auto"
    local: bool = False

    ssh_config: Path | None = None
    ssh_user: str | None = None
    ssh_port: int | None = None
    ssh_key: Path | None = None
    known_hosts: Path | None = None
    jump: str | None = None
    accept_new: bool = False
    python: str | None = None

    profile: str = "launch"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    node: str | None = None
    checks_dir: tuple[Path, ...] = ()

    parallel: int = 64
    timeout: float = 30.0
    deadline: float | None = None
    budget: float | None = None

    env_file: Path | None = None
    master_port: int | None = None
    packages: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    baseline: Path | None = None

    strict: bool = False
    fail_on: str = "fail"
    save: Path | None = LAST
