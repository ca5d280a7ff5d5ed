"""Who starts what: commands taken apart into launchers, their options, and what lies around them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from netdoctor.lint import options as known
from netdoctor.lint.model import Place
from netdoctor.lint.options import Options
from netdoctor.lint.syntax import SHELLS, STARTERS
from netdoctor.lint.values import Command, Hole, Script, Value, Variable, Word, join
from netdoctor.lint.values import known as known_value

TORCH = ("torchrun", "torch.distributed.launch")
PROGRAMS = frozenset({*TORCH, "accelerate", "deepspeed", "ray", "python", "script", "docker"})


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was given. name: without dashes, ``_`` as ``-``; value: None for a flag."""

    name: str
    word: Word
    value: Word | None = None

    @property
    def place(self) -> Place:
        return self.word.place


@dataclass(frozen=True, slots=True)
class Launch:
    """One program that starts a job or a part of one.

    program: torchrun, torch.distributed.launch, accelerate, deepspeed, ray, python, script, docker, or a
    starter's name; given: its options, rest: its own words behind them; open: words that only the shell knows
    stand among the options, so that one that is missing may be there; starters: what starts it, outermost
    first.
    """

    program: str
    command: Command
    place: Place
    given: tuple[Given, ...] = ()
    rest: tuple[Word, ...] = ()
    open: bool = False
    starters: tuple["Launch", ...] = ()
    pairs: tuple[tuple[Word, Word], ...] = ()
    prefix: dict[str, Variable] = field(default_factory=dict)

    def get(self, *names: str) -> Word | None:
        """The value of the last option of these names."""
        found = [g.value for g in self.given if g.name in names and g.value is not None]
        return found[-1] if found else None

    def all(self, name: str) -> list[Word]:
        """The values of an option that may be given more than once."""
        return [g.value for g in self.given if g.name == name and g.value is not None]

    def has(self, *names: str) -> bool:
        return any(g.name in names for g in self.given)

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

    @property
    def words(self) -> tuple[str, ...]:
        """The known words behind the options."""
        return tuple(word.text or "" for word in self.rest)


def launches(script: Script) -> list[Launch]:
    """Every launch of a script in its order."""
    found: list[Launch] = []
    for command in script.commands:
        around = tuple(one for outer in command.around for one in _starters(outer))
        found += _peel(command.words, command, around, {})
    return found


def _starters(command: Command) -> Iterator[Launch]:
    for launch in _peel(command.words, command, (), {}):
        if launch.program in STARTERS:
            yield launch


# Programs that start ranks themselves, by the word that they are called by, or by that and their first word.
_PLAIN: dict[str, tuple[str, Options]] = {
    "torchrun": ("torchrun", known.TORCHRUN),
    "deepspeed": ("deepspeed", known.DEEPSPEED),
    "ds": ("deepspeed", known.DEEPSPEED),
}
_WITH_VERB: dict[tuple[str, str | None], Options] = {
    ("accelerate", "launch"): known.ACCELERATE,
    ("ray", "start"): known.RAY_START,
}


def _peel(
    words: tuple[Word, ...],
    command: Command,
    starters: tuple[Launch, ...],
    prefix: dict[str, Variable],
    depth: int = 0,
) -> list[Launch]:
    """The launches that one command line holds, outermost first."""
    if not words or depth > 8:
        return []
    name = (words[0].text or "").rpartition("/")[2]
    place = words[0].place

    def made(program: str, options: Options, rest: tuple[Word, ...]) -> Launch:
        taken = take(rest, options)
        return Launch(
            program, command, place, taken.given, taken.rest, taken.open, starters, taken.pairs, prefix
        )

    def inside(launch: Launch, *, starts: bool = False) -> list[Launch]:
        around = (*starters, launch) if starts else starters
        found = _peel(launch.rest, command, around, prefix, depth + 1)
        if launch.open and not any(one.program in PROGRAMS for one in found):
            found = _behind_unknown(
                launch.rest, command, around, prefix, depth
            )  # a plug-in's option took a word
        return [launch, *found]

    if name in known.WRAPPERS:
        taken = take(words[1:], known.WRAPPERS[name])
        rest = taken.rest[known.POSITIONAL.get(name, 0) :]
        while name == "env" and rest and _is_assignment(rest[0]):
            prefix = {**prefix, **_as_variable(rest[0])}
            rest = rest[1:]
        return _peel(rest, command, starters, prefix, depth + 1)
    if name in ("srun", "salloc"):
        return inside(made(name, known.SLURM, words[1:]), starts=name == "srun")
    if name in ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun"):
        return inside(made("mpirun", known.MPIRUN, words[1:]), starts=True)
    if name in STARTERS:
        return [Launch(name, command, place, open=True, starters=starters)]
    verb = words[1].text if len(words) > 1 else None
    if name in _PLAIN:
        program, options = _PLAIN[name]
        return [made(program, options, words[1:])]
    if (name, verb) in _WITH_VERB:
        return [made(name, _WITH_VERB[name, verb], words[2:])]
    if name in ("docker", "podman", "nvidia-docker") and verb in ("run", "create"):
        docker = made("docker", known.DOCKER_RUN, words[2:])
        return [docker, *_peel(docker.rest[1:], command, (*starters, docker), prefix, depth + 1)]
    if name in ("singularity", "apptainer", "enroot", "conda", "micromamba", "uv", "poetry", "nsys", "ncu"):
        return _behind_unknown(words[1:], command, starters, prefix, depth)
    if name.startswith(("python", "pypy")):
        return _python(words, command, starters, prefix)
    if name in SHELLS:
        return [Launch("script", command, place, rest=words[1:], starters=starters, prefix=prefix)]
    return (
        [Launch(name, command, place, rest=words[1:], starters=starters, prefix=prefix)] if starters else []
    )


def _behind_unknown(
    words: tuple[Word, ...],
    command: Command,
    starters: tuple[Launch, ...],
    prefix: dict[str, Variable],
    depth: int,
) -> list[Launch]:
    """The launcher behind a program whose options we do not know: the first word that is one."""
    for index, word in enumerate(words):
        name = (word.text or "").rpartition("/")[2]
        if name in ("torchrun", "deepspeed", "accelerate", "ray") or name.startswith("python"):
            return _peel(words[index:], command, starters, prefix, depth + 1)
    return []


def _python(
    words: tuple[Word, ...], command: Command, starters: tuple[Launch, ...], prefix: dict[str, Variable]
) -> list[Launch]:
    """``python -u -m torch.distributed.run …``, or a script."""
    index = 1
    while index < len(words):
        text = words[index].text or ""
        if text == "-m" and index + 1 < len(words):
            rest = words[index + 2 :]
            module = words[index + 1].text or ""
            place = words[0].place
            for names, program, options in (
                (("torch.distributed.run", "torch.distributed.launcher.run"), "torchrun", known.TORCHRUN),
                (("torch.distributed.launch",), "torch.distributed.launch", known.TORCH_LAUNCH),
                (("deepspeed.launcher.runner", "deepspeed"), "deepspeed", known.DEEPSPEED),
                (("accelerate.commands.launch",), "accelerate", known.ACCELERATE),
            ):
                if module in names:
                    taken = take(rest, options)
                    return [
                        Launch(
                            program, command, place, taken.given, taken.rest, taken.open, starters, (), prefix
                        )
                    ]
            return [
                Launch("python", command, place, rest=words[index + 1 :], starters=starters, prefix=prefix)
            ]
        if text in ("-W", "-X"):
            index += 2
        elif text.startswith("-") and text != "-c":
            index += 1
        else:
            break
    return [Launch("python", command, words[0].place, rest=words[index:], starters=starters, prefix=prefix)]


@dataclass(slots=True)
class _Taken:
    given: tuple[Given, ...]
    rest: tuple[Word, ...]
    open: bool
    pairs: tuple[tuple[Word, Word], ...] = ()


def take(words: tuple[Word, ...], options: Options) -> _Taken:
    """Options up to the first word that is none."""
    given: list[Given] = []
    pairs: list[tuple[Word, Word]] = []
    unsure = False
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        head = word.value.head
        if word.text == "--":
            break
        if word.many and not head:
            unsure = True
            continue
        if not head.startswith("-") or head == "-":
            index -= 1
            break
        name, equals, _ = head.partition("=")
        value = _behind(word, len(name) + 1) if equals else None
        bare = name.lstrip("-").replace("_", "-")
        if options.single and bare in known.MPI_PAIRS and index + 1 < len(words):
            pairs.append((words[index], words[index + 1]))
            index += 2
            continue
        if not name.startswith("--") and not options.single:
            bare, value = _short(word, name, options)
        if value is None and not equals and bare in options.valued and index < len(words):
            value = words[index]
            index += 1
        if bare not in options.all and value is None and index < len(words):
            # Whether the next word is its value cannot be told.
            unsure = True
            following = words[index]
            if not following.value.head.startswith("-") and index + 1 < len(words):
                later = words[index + 1].value.head
                index += later.startswith("-") or following.value.number is not None
        given.append(Given(bare, word, value))
    return _Taken(tuple(given), words[index:], unsure, tuple(pairs))


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
    return Word(value, Place(word.place.line, word.place.col), False, word.literal, word.raw)


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.value.head.partition("=")
    return bool(equals) and name.isidentifier()


def _as_variable(word: Word) -> dict[str, Variable]:
    name = word.value.head.partition("=")[0]
    return {name: Variable(_behind(word, len(name) + 1).value, True, None, word.place, word.literal)}


def filled_in_early(value: Value, launch: Launch, names: frozenset[str]) -> Hole | None:
    """A part of `value` that a shell outside of the started processes fills in, made of one of `names`."""
    return next((h for h in value.holes if h.names & names and h.level < launch.level), None)


__all__ = ["TORCH", "Given", "Launch", "filled_in_early", "known_value", "launches", "take"]
