"""Commands that start other commands: in a shell of their own, for each task, or on another host."""

import re
from collections.abc import Sequence

from netdoctor.lint.values import Command, Word
from netdoctor.tables import names

SHELLS = names("bash sh zsh dash ksh")
# Programs that start what they are given somewhere else: once for each task or host.
STARTERS = names("srun mpirun mpiexec mpiexec.hydra orterun prun jsrun ssh pdsh clush parallel-ssh")
REMOTE = names("ssh pdsh clush parallel-ssh")  # the environment stays behind
_WRAPPERS = names("sudo nohup timeout env exec time numactl docker podman singularity apptainer kubectl ray")
_SSH_WITH_VALUE = frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOopQRSWw")


def inner_script(command: Command) -> tuple[Sequence[Word], list[str]]:
    """(the words that are a script together, none where there is no script; the starter before it)."""
    words, name = command.words, command.name
    starters = [name] if name in STARTERS else []
    if name == "eval":
        return words[1:], starters
    if name == "ssh":
        return _behind_ssh(words), starters
    if name in ("pdsh", "clush"):
        return (words[-1:] if len(words) > 2 and " " in str(words[-1]) else ()), starters
    for index, word in enumerate(words[:-2]):
        if word.program in SHELLS and (index == 0 or name in STARTERS or name in _WRAPPERS):
            for at in range(index + 1, min(index + 4, len(words) - 1)):
                flag = words[at].text or ""
                if not flag.startswith("-"):
                    break
                if re.fullmatch(r"-[a-z]*c", flag):
                    return [words[at + 1]], starters
            break
    return (), starters


def _behind_ssh(words: tuple[Word, ...]) -> Sequence[Word]:
    at = 1
    while at < len(words):
        text = words[at].text or ""
        if not text.startswith("-"):
            return words[at + 1 :]
        at += 2 if text in _SSH_WITH_VALUE else 1
    return ()


def reads_input(command: Command) -> list[str] | None:
    """The starters before a shell that takes its script from its input, None where there is no such shell."""
    words, name = command.words, command.name
    if name == "ssh":
        words = (words[0], *_behind_ssh(words))
        if len(words) == 1:
            return [name]
    for index, word in enumerate(words):
        if word.program in SHELLS and (index == 0 or name in STARTERS or name in _WRAPPERS):
            flags = [one.text or "" for one in words[index + 1 :]]
            reads = "-s" in flags or all(re.fullmatch(r"[-+]\w*|--\w+", one) for one in flags)
            return ([name] if name in STARTERS else []) if reads and "-c" not in flags else None
    return None
