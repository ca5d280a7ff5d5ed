"""What a scan is asked for, whoever asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from netdoctor.inventory import Target
from netdoctor.report import LAST
from netdoctor.transport.base import LOGINS_AT_ONCE

# A partition of Slurm's, or several of them; it becomes an argument of its commands.
PARTITION = r"\A[A-Za-z0-9_][A-Za-z0-9_.,-]{0,200}\Z"
# A path of the job on the nodes, as --path takes it.
PLACE = r"\A(/|~/|~\Z)[^\x00-\x1f\x7f]{0,1000}\Z"
# A URL as --reach keeps it: no user, no password, no query, where secrets would be.
URL = (
    r"\Ahttps?://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})(:[0-9]{1,5})?(/[!-\"$->A-~]*)?\Z"
)
URL_LENGTH, URLS = 1000, 16
# Fields of a request that name files.
PATHS = (
    *("ssh_config", "ssh_key", "known_hosts", "env_file", "requirements", "baseline", "suppress", "expect"),
    "secret_file",
)


class Selection(NamedTuple):
    """Which checks, by globs on their ids, and which nodes, by a node-set expression; None for all."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """One scan. Fields are named as the options of `netdoctor scan`, which describes them.

    hosts: what names the nodes: files, ``-``, names. targets: the nodes of an earlier report instead, source
    that report's file, and remarks what is to be told of them. only, skip, node: see Selection; usual: what
    --last shall ask for the next time where they hold for this run alone. packages: names, and versions where
    they are asked for, with commas; requirements: a file of pip's with more of them. path: each of PLACE.
    timeout (per node), deadline, budget: seconds. environ: of the shell that the job would be launched from.
    require: families of checks. expect: what nodes should have; without it what netdoctor.toml names.
    save: where the report goes, None for nowhere. via: what reaches the nodes, one of VIAS.
    ray_address, ray_python: where the cluster is, and an interpreter with its Ray, for ``ray``.
    partition: of Slurm, where an allocation is asked for.
    facts: folders, patterns and files with what tasks have written, instead of reaching them: via is FILED.
    meet: where tasks of a job call by themselves, as of transport.tasks.meeting, unreached: via is
    MEET; tasks: how many there are; secret_file: a file with the secret that they have, too.
    facts_age: seconds; facts_nodes: how many nodes there have to be; facts_uid: whose files count, too;
    facts_job: which job of several that wrote.
    """

    hosts: tuple[str, ...] = ()
    targets: tuple[Target, ...] | None = None
    source: Path | None = None
    remarks: tuple[str, ...] = ()
    format: str = "auto"
    local: bool = False
    via: str = "ssh"
    ray_address: str | None = None
    ray_python: str | None = None
    partition: str | None = None
    facts: tuple[str, ...] = ()
    facts_age: float = 3600.0
    facts_nodes: int | None = None
    facts_uid: int | None = None
    facts_job: str | None = None
    meet: str | None = None
    tasks: int | None = None
    secret_file: Path | None = None

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
    also: tuple[str, ...] = ()
    reach: tuple[str, ...] = ()
    write_test: tuple[str, ...] = ()
    node: str | None = None
    usual: Selection | None = None
    checks_dir: tuple[Path, ...] = ()

    parallel: int = LOGINS_AT_ONCE
    timeout: float = 30.0
    deadline: float | None = None
    budget: float | None = None

    env_file: Path | None = None
    master_port: int | None = None
    packages: str = ""
    requirements: Path | None = None
    path: tuple[str, ...] = ()
    launcher: str | None = None
    backend: str | None = None
    image: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    baseline: Path | None = None
    suppress: Path | None = None
    expect: Path | None = None

    strict: bool = False
    require: tuple[str, ...] = ()
    fail_on: str = "fail"
    save: Path | None = LAST
