"""Whether the shells that jobs are started by come to an end, and give a job the same."""

from collections.abc import Iterator, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.env._shells import BY_SSH, PYTHONS, UNNAMED, Difference, lacking
from netdoctor.facts.host import Session
from netdoctor.facts.launching import JobShells, ShellAnswer
from netdoctor.facts.software import Job
from netdoctor.model import (
    DERIVED,
    HERE,
    SUSPECTED,
    Cause,
    Finding,
    Status,
    in_job,
    look,
    ok,
    seen,
    skip,
    unknown,
)

# How many times as long as the plain shell one takes that comes to no end.
TIMES_PLAIN = 5.0
FOR_WHOM = {
    "bash -c": "scripts for bash",
    "bash -l -c": "login shells (#!/bin/bash -l, sbatch --get-user-env)",
}
HANGS = Cause("env-shell-no-end", "A shell that starts jobs on {nodes} runs no command")
OTHER = Cause("env-shell-differs", "jobs on {nodes} get different settings from different shells")
WHO = (
    "name the launcher with --launcher: pdsh, DeepSpeed and mpirun start the job by SSH, srun "
    "from an sbatch script"
)


@check(
    profile="asked",
    required=False,
    source="https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html",
)
def env_shell(found: JobShells, job: Job, session: Session | None) -> Iterator[Finding]:
    """Shells without a prompt end, and all of them give a job the same settings.

    Looks at:
        ``sh -c``, ``bash -c`` and ``bash -l -c``, 10 s each. Whether they run a command; the first
        python3 and torchrun in their PATH (unless ``--python`` names one); search paths of libraries and
        modules, NCCL_*, CUDA_* and the like. What the job sets (``--env-file``) counts as set. It runs
        only with ``--also env.shell``, because start-up files do whatever their owner wrote there.

    Matters because:
        pdsh, DeepSpeed and mpirun start ranks without a login. An sbatch script may be a login shell
        (``#!/bin/bash -l``), which reads /etc/profile.d and ~/.profile; ``bash -c`` reads the file that
        BASH_ENV names. If such a file waits, the job waits for ever. If it sets PATH or LD_LIBRARY_PATH,
        the job gets another Python, or other libraries, than the ones you tried.

    Fix:
        Repair the start-up file that does not end. Set what the job needs in the job, not in such files.
    """
    plain, *others = found.shells or (ShellAnswer(way="sh -c", error="no shell is there"),)
    if plain.error:
        yield unknown(HERE, f"{plain.way} did not show its settings: {plain.error}")
        return
    if not others:
        yield skip("there is no bash")
    is_named = session is not None and session.interpreter != UNNAMED
    for other in others:
        if other.error:
            yield _without_answer(other, plain, job)
        elif differing := _differences(plain, other, job, is_named):
            yield _differs(other, differing, job)


def _without_answer(other: ShellAnswer, plain: ShellAnswer, job: Job) -> Finding:
    words = f"{other.way} runs no command: {other.error}"
    if other.seconds < TIMES_PLAIN * plain.seconds if other.late else not other.error.startswith("it ended"):
        return unknown(HERE, f"{words}; {plain.way} took {plain.seconds:.1f} s")
    return HANGS.say(
        Status.FAIL if job.launcher in ("srun", None) else Status.WARN,
        f"{words}; {plain.way} took {plain.seconds:.1f} s, and {FOR_WHOM[other.way]} start jobs by it",
        observed=other.error,
        expected="runs a command",
        seen=seen(f"{other.way} true", other.error, "command"),
        fixes=look(
            "see at which line of a start-up file it waits (/etc/profile.d, ~/.bash_profile,"
            " ~/.profile, what BASH_ENV names)",
            f"timeout 10 {other.way.replace('bash', 'bash -x', 1)} true 2>&1 </dev/null | tail -n 20",
        ),
    )


def _differences(plain: ShellAnswer, other: ShellAnswer, job: Job, is_named: bool) -> list[Difference]:
    more = {one.name: one for one in lacking(other.variables, plain.variables)}
    for lost in lacking(plain.variables, other.variables):
        more.setdefault(lost.name, Difference(lost.name, lost.elsewhere, lost.here))
    found = [one for name, one in more.items() if name not in job.env]
    for name in () if is_named else PYTHONS:
        if plain.tools.get(name) != other.tools.get(name):
            paths = (shell.tools.get(name, "not on PATH") for shell in (plain, other))
            found.append(Difference(name, *paths))
    return found


def _differs(other: ShellAnswer, found: Sequence[Difference], job: Job) -> Finding:
    names = listing([one.name for one in found], 6)
    words = f"{other.way} has other values of {names} than sh -c"
    if job.launcher not in (*BY_SSH, "srun", None):
        return ok(HERE, f"{words}; {job.launcher} passes on those of the shell that started it")
    cause = OTHER if job.launcher else OTHER.but(confidence=SUSPECTED, settle_by=WHO)
    values = "; ".join(f"{one.name}: {one.elsewhere}" for one in found[:6])
    return cause.warn(
        f"{words}: {FOR_WHOM[other.way]} get them, and commands that SSH starts do not",
        observed=values,
        expected=DERIVED("; ".join(f"{one.name}: {one.here}" for one in found[:6])),
        seen=seen(f"{other.way} env", values, "command"),
        fixes=[
            in_job("set them for the job (--env-file), so that they do not depend on the shell"),
            look("see what it sets", f"{other.way} env </dev/null 2>/dev/null | sort"),
        ],
    )
