"""Facts about what a named launcher, or a named container image, finds on a node."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that a launcher needs."""

    name: str
    path: str | None = None  # on the session's PATH
    beside: str | None = None  # next to the job's interpreter
    said: str = ""  # of its version


@fact("launch", absent=True, named=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """What a launcher, or a container image, finds on a node."""

    programs: tuple[Program, ...] = ()
    pdsh_rcmd: str | None = None  # PDSH_RCMD_TYPE of the session
    runtimes: tuple[str, ...] = ()  # ``docker``, ``podman``
    toolkit: tuple[str, ...] = ()  # files by which containers get NVIDIA's GPUs
    images: dict[str, str] = field(
        default_factory=dict
    )  # id or digest of the image, by the file of the store
    stores: tuple[str, ...] = ()  # those that were read
    unread: tuple[str, ...] = ()  # those that could not be, with the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellAnswer:
    """What a command has that is started by a shell without a prompt."""

    way: str  # ``sh -c``, ``bash -c``, ``bash -l -c``
    error: str = ""  # why nothing is known of it; empty where it answered
    late: bool = False  # it did not come to an end in time
    seconds: float = 0.0
    variables: dict[str, str] = field(default_factory=dict)  # those that matter to jobs, secrets masked
    tools: dict[str, str] = field(default_factory=dict)  # where its PATH has a program


@fact("job_shells", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class JobShells:
    """The shells that launchers and scripts of jobs start, asked one after the other; the first is ``sh -c``,
    which has what the session has. Those that are not there are left out."""

    shells: tuple[ShellAnswer, ...]


@fact("shell_env", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellFacts:
    """What the user's shell gives to a login at a terminal."""

    shell: str = ""
    error: str = ""  # why nothing is known of it; empty where it answered
    variables: dict[str, str] = field(default_factory=dict)  # those that matter to jobs, secrets masked
    tools: dict[str, str] = field(default_factory=dict)  # where its PATH has a program
    # Where that of the session without a terminal has.
    own_tools: dict[str, str] = field(default_factory=dict)
    guard: int | None = None  # the line of ~/.bashrc below which nothing counts without a prompt
