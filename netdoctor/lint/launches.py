"""Who starts what: commands taken apart into launchers, their options, and what lies around them."""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from netdoctor.lint import options as known
from netdoctor.lint.model import Position
from netdoctor.lint.nested import SHELLS, STARTERS
from netdoctor.lint.options import Options
from netdoctor.lint.values import Command, Environment, Hole, Script, Value, Variable, Word, join
from netdoctor.tables import names

TORCH = ("torchrun", "torch.distributed.launch")
PROGRAMS = frozenset({*TORCH, "accelerate", "deepspeed", "ray", "python", "script", "docker"})
# Programs in front of a launcher whose options we do not know.
_UNKNOWN = names("singularity apptainer enroot conda micromamba uv poetry nsys ncu")
_ALIASES = {
    "ds": "deepspeed",
    **dict.fromkeys(("podman", "nvidia-docker"), "docker"),
    **dict.fromkeys(("mpiexec", "mpiexec.hydra", "orterun", "prun"), "mpirun"),
}
_WITH_VERB = {("accelerate", "launch"), ("ray", "start"), ("docker", "run"), ("docker", "create")}
_SCRIPT = re.compile(r"\.(sh|bash|slurm|sbatch)\Z")
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launcher.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
    "accelerate.commands.launch": "accelerate",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it was given."""

    name: str  # without dashes, ``_`` as ``-``
    word: Word
    value: Word | None = None  # None of a flag
    behind_any: bool = False  # a word that only the shell knows stands before it: that may be the script

    @property
    def position(self) -> Position:
        return self.word.position


@dataclass(frozen=True, slots=True)
class Launch:
    """One program that starts a job or a part of one."""

    program: str  # one of PROGRAMS, or a starter's name
    command: Command
    position: Position
    options: tuple[Option, ...] = ()
    rest: tuple[Word, ...] = ()  # its own words behind the options
    open: bool = False  # words that only the shell knows stand among the options: a missing one may be there
    starters: tuple["Launch", ...] = ()  # what starts it, outermost first
    pairs: tuple[tuple[Word, Word], ...] = ()  # of Open MPI's --mca
    prefix: Environment = field(default_factory=dict)  # variables for it alone
    word: Word | None = None  # that names the program

    def get(self, *names: str) -> Word | None:
        """The value of the last option of these names."""
        found = [g.value for g in self.options if g.name in names and g.value is not None]
        return found[-1] if found else None

    def all(self, name: str) -> list[Word]:
        """The values of an option that may be given more than once."""
        return [g.value for g in self.options if g.name == name and g.value is not None]

    def texts(self, *names: str) -> list[str]:
        """The values of these options, "" for those that only the shell knows."""
        return [word.text or "" for name in names for word in self.all(name)]

    def has(self, *names: str) -> bool:
        return any(g.name in names for g in self.options)

    def number(self, *names: str) -> int | None:
        word = self.get(*names)
        return word.value.number if word is not None else None

    def starter(self, *names: str) -> "Launch | None":
        """The innermost starter of these names."""
        return next((s for s in reversed(self.starters) if s.program in names), None)

    @property
    def level(self) -> int:
        """How many starters stand around the process."""
        return sum(1 for s in self.starters if s.program in STARTERS)

    def variable(self, name: str) -> Variable | None:
        """A variable of the environment in which it starts."""
        return self.prefix.get(name) or self.command.prefix.get(name) or self.command.environment.get(name)

    def exported(self, name: str) -> Variable | None:
        variable = self.variable(name)
        return variable if variable is not None and variable.exported else None


def launches(script: Script) -> list[Launch]:
    """Every launch of a script in its order."""
    found: list[Launch] = []
    for command in script.commands:
        starters = tuple(
            launch
            for outer in command.outer
            for launch in _launches_in(outer.words, Launch("", outer, outer.position))
            if launch.program in STARTERS
        )
        found += _launches_in(command.words, Launch("", command, command.position, starters=starters))
    return found


def started_file(command: Command) -> tuple[Word, list[str]] | None:
    """(the file, the starters before it) of a command that starts a script of its own, None for others."""
    if command.name in ("source", "."):
        return (command.words[1], []) if len(command.words) > 1 else None
    found = _launches_in(command.words, Launch("", command, command.position))
    launch = found[-1] if found else Launch(command.name, command, command.position)
    starters = [one.program for one in launch.starters if one.program in STARTERS]
    if launch.program == "script":
        files = [word for word in launch.rest if not word.value.head.startswith(("-", "+"))]
        return (files[0], starters) if files else None
    word = launch.word or command.words[0]
    if launch.program not in (*PROGRAMS, *STARTERS) and _SCRIPT.search(str(word)):
        return word, starters
    return None


def _launches_in(words: tuple[Word, ...], base: Launch, depth: int = 0) -> list[Launch]:
    """The launches that one command line holds, outermost first. base: what they have in common."""
    if not words or depth > 8:
        return []
    name, verb = words[0].program, words[1].text if len(words) > 1 else None
    base = replace(base, position=words[0].position, word=words[0])
    if name in known.WRAPPERS:
        rest = take(words[1:], known.WRAPPERS[name]).rest[known.POSITIONAL.get(name, 0) :]
        prefix = dict(base.prefix)
        while name == "env" and rest:
            variable, equals, _ = rest[0].value.head.partition("=")
            if not equals or not variable.isidentifier():
                break
            value = _behind(rest[0], len(variable) + 1).value
            prefix[variable] = Variable(value, True, None, rest[0].position, rest[0].literal)
            rest = rest[1:]
        return _launches_in(rest, replace(base, prefix=prefix), depth + 1)
    program = _ALIASES.get(name, name)
    if program in ("srun", "salloc", "sbatch", "mpirun"):
        return _with_inner(_launch(base, program, words[1:]), depth)
    if name in STARTERS:
        return [replace(base, program=name, open=True)]
    if program in ("torchrun", "deepspeed"):
        return [_launch(base, program, words[1:])]
    if (program, verb) in _WITH_VERB:
        launch = _launch(base, program, words[2:])
        if program != "docker":
            return [launch]
        inner = replace(base, starters=(*base.starters, launch))
        return [launch, *_launches_in(launch.rest[1:], inner, depth + 1)]
    if (name, verb) == ("ray", "job"):  # ray job submit OPTIONS -- COMMAND
        return _behind_unknown(words[2:], base, depth)
    if name in _UNKNOWN:
        return _behind_unknown(words[1:], base, depth)
    if name.startswith(("python", "pypy")):
        return [_python(words, base)]
    if name in SHELLS:
        return [replace(base, program="script", rest=words[1:])]
    return [replace(base, program=name, rest=words[1:])] if base.starters else []


def _launch(base: Launch, program: str, words: tuple[Word, ...]) -> Launch:
    return replace(base, program=program, **take(words, known.PROGRAMS[program])._asdict())


def _with_inner(launch: Launch, depth: int) -> list[Launch]:
    """A launch, and those in the words behind its options."""
    starters = (*launch.starters, launch) if launch.program in STARTERS else launch.starters
    base = Launch("", launch.command, launch.position, starters=starters, prefix=launch.prefix)
    found = _launches_in(launch.rest, base, depth + 1)
    if launch.open and not any(one.program in PROGRAMS for one in found):
        found = _behind_unknown(launch.rest, base, depth)  # a plug-in's option took a word
    return [launch, *found]


def _behind_unknown(words: tuple[Word, ...], base: Launch, depth: int) -> list[Launch]:
    """The launcher behind a program whose options we do not know: the first word that is one."""
    for index, word in enumerate(words):
        name = word.program
        if name in ("torchrun", "deepspeed", "accelerate", "ray", *SHELLS) or name.startswith("python"):
            return _launches_in(words[index:], base, depth + 1)
    return []


def _python(words: tuple[Word, ...], base: Launch) -> Launch:
    """``python -u -m torch.distributed.run …``, or a script."""
    index = 1
    while index < len(words):
        text = words[index].text or ""
        if text == "-m" and index + 1 < len(words):
            index += 1
            if (module := words[index].text or "") in _MODULES:
                return _launch(base, _MODULES[module], words[index + 1 :])
            break
        if text in ("-W", "-X"):
            index += 2
        elif text.startswith("-") and text != "-c":
            index += 1
        else:
            break
    return replace(base, program="python", rest=words[index:])


class Arguments(NamedTuple):
    """A command line taken apart; the fields are those of a Launch."""

    options: tuple[Option, ...]
    rest: tuple[Word, ...]
    open: bool
    pairs: tuple[tuple[Word, Word], ...]


def take(words: tuple[Word, ...], spec: Options) -> Arguments:
    """Options up to the first word that is none."""
    options: list[Option] = []
    pairs: list[tuple[Word, Word]] = []
    unsure = behind_any = False
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        head = word.value.head
        if word.text == "--":
            break
        if word.many and not head:
            unsure = behind_any = True
            continue
        if not head.startswith("-") or head == "-":
            index -= 1
            break
        name, equals, _ = head.partition("=")
        value = _behind(word, len(name) + 1) if equals else None
        bare = name.lstrip("-").replace("_", "-")
        if spec.single and bare in known.MPI_PAIRS and index + 1 < len(words):
            pairs.append((words[index], words[index + 1]))
            index += 2
            continue
        if not name.startswith("--") and not spec.single:
            bare, value = _short(word, name, spec)
        if value is None and not equals and bare in spec.valued and index < len(words):
            value = words[index]
            index += 1
        if bare not in spec.all and value is None and index < len(words):
            # Whether the next word is its value cannot be told.
            unsure = True
            following = words[index]
            if not following.value.head.startswith("-") and index + 1 < len(words):
                later = words[index + 1].value.head
                index += later.startswith("-") or following.value.number is not None
        options.append(Option(bare, word, value, behind_any))
    return Arguments(tuple(options), words[index:], unsure, tuple(pairs))


def _short(word: Word, name: str, options: Options) -> tuple[str, Word | None]:
    """``-N2``, ``-N=2``, ``-N 2``, ``-it``: the option's long name and what is joined to it."""
    letter = name[1:2]
    long = options.short.get(letter, letter)
    if len(word.value.head) > 2 or len(word.value.pieces) > 1:
        if long in options.valued:
            start = 3 if word.value.head[2:3] == "=" else 2
            return long, _behind(word, start)
        letters = [options.short.get(c, c) for c in name[1:]]  # -itd
        return next((one for one in letters if one in options.valued), letters[0] if letters else ""), None
    return long, None


def _behind(word: Word, start: int) -> Word:
    value = join((word.value.head[start:], *word.value.pieces[1:]))
    return Word(value, Position(word.position.line, word.position.col), False, word.literal, word.raw)


def filled_in_early(value: Value, launch: Launch, names: frozenset[str]) -> Hole | None:
    """A part of `value` that a shell outside of the started processes fills in, made of one of `names`."""
    return next((h for h in value.holes if h.names & names and h.level < launch.level), None)
