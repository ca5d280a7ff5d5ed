"""What a login at a terminal has, and a job that is started by SSH has not."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.env._shells import BY_SSH, PYTHONS, UNNAMED, Difference, lacking
from netdoctor.facts.host import Session
from netdoctor.facts.launching import ShellFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import DERIVED, HERE, SUSPECTED, Cause, Finding, in_job, look, ok, seen, skip, unknown
from netdoctor.rules.variables import effective_env

SHELLS = ("bash", "zsh", "ksh", "dash", "sh")


def programs(shell: ShellFacts, session: Session | None) -> Iterator[Difference]:
    """Programs that PATH has elsewhere, or only in a login; not the interpreter where one is named."""
    is_named = session is not None and session.interpreter != UNNAMED
    for name, in_login in shell.tools.items():
        here = shell.own_tools.get(name)
        if here != in_login and not (is_named and name in PYTHONS):
            yield Difference(name, here or "not on PATH", in_login)


OTHER = Cause("env-login-only", "jobs that SSH starts on {nodes} lack what logins there have")
WHO = "name the launcher with --launcher: pdsh, DeepSpeed and mpirun start the job by SSH"


@check(
    explains=("env.shell",),
    profile="asked",
    required=False,
    via="ssh",
    source="https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html",
)
def env_login(shell: ShellFacts, env: EnvFacts, job: Job, session: Session | None) -> Iterator[Finding]:
    """What a login at a terminal sets for a job is also set in sessions without a terminal.

    Looks at:
        Search paths of libraries and modules, NCCL_*, CUDA_* and the like, and the first python3,
        torchrun, mpirun, nvcc and so on in PATH. Two sources are compared: the user's own shell (``bash
        -l -i``, within 10 s; what its files print is ignored), and the session in which SSH starts a
        command. What the job sets (``--env-file``) counts as set. It runs only with ``--also env.login``,
        because start-up files do whatever their owner wrote there.

    Matters because:
        pdsh, DeepSpeed and mpirun start ranks in sessions without a terminal. There ~/.bashrc usually
        stops at a line such as ``[ -z "$PS1" ] && return``. A module loaded below that line works when
        you try it by hand, but the job gets another Python, or no libraries. torchrun started by hand,
        srun and Ray have the environment of the shell that started them; if one of these is named, the
        difference is only a note.

    Fix:
        Set it for the job, or move it above that line.
    """
    if shell.error:
        words = f"{shell.shell} -l -i did not show its settings: {shell.error}"
        yield skip(shell.error) if shell.error.endswith("not asked") else unknown(HERE, words)
        return
    in_job_env = {name: one.value for name, one in effective_env(env, job).items()}
    found = [*lacking(shell.variables, in_job_env), *programs(shell, session)]
    if not found:
        return
    names = listing([one.name for one in found], 6)
    if job.launcher not in (*BY_SSH, None):
        yield ok(HERE, f"a login at a terminal has other values of {names}; {job.launcher} passes its own on")
        return
    above = (
        f"above line {shell.guard} of ~/.bashrc"
        if shell.guard
        else "to where sessions without a prompt read it"
    )
    cause = OTHER if job.launcher else OTHER.but(confidence=SUSPECTED, settle_by=WHO)
    kind = shell.shell.rpartition("/")[2]
    command = f"{kind if kind in SHELLS else 'sh'} -l -i -c env"
    yield cause.warn(
        f"a login at a terminal has other values of {names}",
        observed="; ".join(f"{one.name}: {one.here}" for one in found[:6]),
        expected=DERIVED("; ".join(f"{one.name}: {one.elsewhere}" for one in found[:6])),
        seen=seen(command, "\n".join(f"{one.name}={one.elsewhere}" for one in found[:6]), "command"),
        fixes=[
            in_job(f"set it for the job (--env-file), or move it {above}"),
            look("see the settings of a login", f"{command} </dev/null 2>/dev/null | sort"),
        ],
    )
