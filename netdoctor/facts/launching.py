"""Facts about what a named launcher, or a named container image, finds on a node."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """path: on the session's PATH; beside: next to the job's interpreter; said: of its version."""

    name: str
    path: str | None = None
    beside: str | None = None
    said: str = ""


@fact("launch", absent=True, named=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """Programs of the launcher. pdsh_rcmd: PDSH_RCMD_TYPE of the session. runtimes: ``docker``, ``podman``.

    Of the image: toolkit: files by which containers get NVIDIA's GPUs; images: its id or digest by the file
    of the store; stores: those that were read; unread: those that could not be, with the reason.
    """

    programs: tuple[Program, ...] = ()
    pdsh_rcmd: str | None = None
    runtimes: tuple[str, ...] = ()
    toolkit: tuple[str, ...] = ()
    images: dict[str, str] = field(default_factory=dict)
    stores: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@fact("shell_env", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellFacts:
    """What the user's shell gives to a login at a terminal.

    error: why nothing is known of it; empty where it answered. variables: those that matter to jobs, secrets
    masked. tools: where its PATH has a program; own_tools: where that of the session without a terminal has.
    guard: the line of ~/.bashrc below which nothing counts without a prompt.
    """

    shell: str = ""
    error: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    own_tools: dict[str, str] = field(default_factory=dict)
    guard: int | None = None
