"""From bytes to what rules read: which kind of file it is, and one object for each way to look at it."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os.path import basename, dirname, normpath
from os.path import join as joined
from pathlib import PurePath

from netdoctor.errors import InputError
from netdoctor.files import read_regular, reason
from netdoctor.lint.documents import Item, documents
from netdoctor.lint.launches import Launch, Option, launches
from netdoctor.lint.model import Kind, Position
from netdoctor.lint.program import Python, Text, parse_python
from netdoctor.lint.slurm import Request, Step, read_request, step
from netdoctor.lint.syntax import parse
from netdoctor.lint.values import Hole, Script, Value, Word, join, text_value
from netdoctor.tables import names
from netdoctor.text import clean

FILE_MOST = 1024 * 1024
SHELL_MOST = 128 * 1024
LINE_MOST = 64 * 1024
PROGRAMS_MOST = 20  # that a script starts

_SHEBANG = re.compile(r"#!.*\b(ba|da|z|k)?sh\b")
_LAUNCHER = re.compile(
    r"\b(torchrun|srun|mpirun|deepspeed|accelerate launch|ray start|docker run|torch\.distributed)\b"
)
_HOST_LINE = re.compile(r"[\w.@-]+[ \t]+(max[-_])?slots[ \t]*=")
_OTHERS = tuple(names(".c .cc .cpp .cu .h .md .rst .html .ipynb .toml .ini .cfg .log"))
_SETTING = re.compile(r"[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable that a file sets for a job."""

    name: str
    value: Value
    position: Position
    exported: bool = True
    level: int = 0
    literal: bool = False
    container: bool = False  # only inside of one
    certain: bool = True  # the job has it, whatever else the file does


@dataclass(frozen=True, slots=True)
class Settings:
    """All variables that one file sets."""

    file: Text
    items: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell script or batch file."""

    file: Text
    script: Script
    launches: tuple[Launch, ...]
    request: Request
    batch: bool
    programs: tuple[tuple[Launch, Python], ...] = ()  # what it starts, where it could be read

    def launches_of(self, *programs: str, closed: bool = False) -> Iterator[Launch]:
        """Launches of these programs. closed: only those whose options are all known."""
        return (one for one in self.launches if one.program in programs and not (closed and one.open))

    def step_of(self, launch: Launch) -> Step | None:
        """What the srun around a launch starts, None where there is none."""
        srun = launch.starter("srun")
        return step(srun, self.request) if srun is not None else None


@dataclass(frozen=True, slots=True)
class Hosts:
    """A hostfile."""

    file: Text
    lines: tuple[tuple[int, str], ...]  # (number, text without comment) of those that have any


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A Dockerfile."""

    file: Text
    instructions: tuple[tuple[Position, str, str], ...]  # (position, name, rest), continued lines joined

    def instructions_of(self, *names: str) -> Iterator[tuple[Position, str]]:
        """(position, rest) of the instructions of these names."""
        return ((position, rest) for position, name, rest in self.instructions if name in names)


@dataclass(frozen=True, slots=True)
class Config:
    """A YAML or JSON file."""

    file: Text
    documents: tuple[Item, ...]

    def documents_of(self, kind: Kind) -> tuple[Item, ...]:
        """The documents, none where the file is of another kind."""
        return self.documents if self.file.kind is kind else ()


@dataclass(slots=True)
class Read:
    """One file with all its views."""

    file: Text
    views: list[object] = field(default_factory=list)

    @property
    def unread(self) -> Iterator[tuple[str, Position, str]]:
        """(path, position, what) of that which was not understood."""
        for view in self.views:
            if isinstance(view, Shell):
                yield from ((view.file.path, position, text) for position, text in view.script.unread)
            elif isinstance(view, Config):
                keys = [(name, item) for document in view.documents for name, item in document.pairs()]
                dotted = next(((name, item) for name, item in keys if "." in name and " " not in name), None)
                if dotted is not None:
                    text = f"{dotted[0]} and other keys with dots, which are one key each"
                    yield view.file.path, dotted[1].position, text
            elif isinstance(view, Python) and view.tree is None:
                yield view.file.path, Position(1), "this is no Python that can be parsed"

    @property
    def started(self) -> dict[str, str]:
        """The texts of files that this one starts, by path."""
        found: dict[str, str] = {}
        for view in self.views:
            found |= view.script.started if isinstance(view, Shell) else {}
            if isinstance(view, Shell | Python):
                found[view.file.path] = view.file.text
        return found


_Opener = Callable[[str], tuple[str, str] | None]


def _opener(path: str, given: Sequence[str]) -> _Opener:
    """What finds a file that a script names: among those that were given, then beside the script."""

    def find(name: str) -> tuple[str, str] | None:
        base, folder = basename(name), dirname(path)
        paths = [one for one in given if basename(one) == base]
        if name[:1] != "/" and ".." not in name.split("/"):
            paths.append(normpath(joined(folder, name)))
        for file in (*paths, normpath(joined(folder, base))):
            try:
                content = read_regular(file, SHELL_MOST)
            except (OSError, ValueError):
                continue
            if len(content) <= SHELL_MOST and b"\0" not in content and file != path:
                return file, content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        return None

    return find


def read(path: str, kind: Kind | None, content: bytes | None = None, given: Sequence[str] = ()) -> Read:
    """Read one file, and those that it starts. given: files that these may be.

    Raises InputError where it is none that can be read.
    """
    name = clean(path, 300)
    opener: _Opener = _opener(path, given) if content is None else lambda name: None
    if content is None:
        try:
            content = read_regular(path, FILE_MOST)
        except (OSError, ValueError) as error:
            raise InputError(f"{name}: {reason(error)}") from None
    if len(content) > FILE_MOST:
        raise InputError(f"{name}: larger than {FILE_MOST // 1024 // 1024} MiB; that is not a launch script")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{name}: UTF-16 text, UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8")
    if b"\0" in content:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        raise InputError(f"{name}:{line}: NUL byte: this is not a text file")
    text = content.decode("utf-8-sig", "replace")
    crlf = "\r\n" in text
    text = text.replace("\r\n", "\n")
    long = next((n for n, line in enumerate(text.split("\n"), 1) if len(line) > LINE_MOST), None)
    if long is not None:
        raise InputError(
            f"{name}:{long}: a line of more than {LINE_MOST} characters; that is not a launch script"
        )
    kind = kind or kind_of(path, text)
    if kind is None:
        kinds = ", ".join(Kind)
        raise InputError(f"{name}: cannot tell what kind of file this is; say --as with one of: {kinds}")
    file = Text(path, kind, text, crlf)
    return Read(file, list(_views(file, opener)))


def kind_of(path: str, text: str) -> Kind | None:
    """The kind of a file by its name, then by its text."""
    name = PurePath(path).name.lower()
    if name.endswith((".yaml", ".yml", ".json")):
        return _kind_of_config(text)
    if name.endswith(".py"):
        return Kind.PYTHON
    if name == ".deepspeed_env":
        return Kind.DEEPSPEED_ENV
    if name.startswith(("dockerfile", "containerfile")) or name.endswith((".dockerfile", ".containerfile")):
        return Kind.DOCKERFILE
    if name.endswith(_OTHERS):
        return None
    if name.endswith((".sbatch", ".slurm")) or _is_batch(text):
        return Kind.SBATCH
    if name.endswith((".sh", ".bash")) or _SHEBANG.match(text):
        return Kind.SHELL
    if text.startswith("#!"):
        return None
    if name.endswith(".env") or name.startswith(".env."):
        return Kind.ENV
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if lines and all(_HOST_LINE.match(line) for line in lines[:3]):
        return Kind.HOSTFILE
    if "hostfile" in name or "machinefile" in name or name.endswith(".hosts"):
        return Kind.HOSTFILE
    if lines and all(_SETTING.match(line) for line in lines):
        return Kind.ENV
    if re.search(r"^FROM[ \t]+\S+", text, re.MULTILINE) and re.search(
        r"^(RUN|ENV|CMD)[ \t]", text, re.MULTILINE
    ):
        return Kind.DOCKERFILE
    if _LAUNCHER.search(text):
        return Kind.SHELL
    return None


def _is_batch(text: str) -> bool:
    """Whether it has directives: above the first command, or anywhere where no file is written."""
    if "\n#SBATCH" not in text and not text.startswith("#SBATCH"):
        return False
    return bool(read_request(text.split("\n")).options) or "<<" not in text


def _kind_of_config(text: str) -> Kind | None:
    """By keys at the left edge, so that a broken file still has a kind, and a reader that says what is
    broken."""
    keys = set(re.findall(r"^(?:- )?[\"']?([A-Za-z_]\w*)(?:\.[\w.]+)?[\"']?[ \t]*:", text, re.MULTILINE))
    if text.lstrip().startswith("{"):
        keys |= set(re.findall(r"\"([A-Za-z_]\w*)\"[ \t\n]*:", text))
    if {"apiVersion", "kind"} <= keys:
        return Kind.KUBERNETES
    if "services" in keys:
        return Kind.COMPOSE
    if "cluster_name" in keys and ("provider" in keys or "head_start_ray_commands" in keys):
        return Kind.RAY
    if "compute_environment" in keys or {"num_machines", "num_processes"} <= keys:
        return Kind.ACCELERATE
    if "num_gpus_per_node" in keys and "device_mapping" in text:
        return Kind.ROLL
    if "actor_rollout_ref" in keys or ("trainer" in keys and "n_gpus_per_node" in text):
        return Kind.VERL
    if {"trainer", "model"} <= keys and "model_parallel_size" in text:
        return Kind.NEMO
    if "base_model" in keys and keys & {"micro_batch_size", "gradient_accumulation_steps", "sequence_len"}:
        return Kind.AXOLOTL
    if keys & {"train_micro_batch_size_per_gpu", "zero_optimization", "train_batch_size"}:
        return Kind.DEEPSPEED
    return None


def _views(file: Text, opener: _Opener) -> Iterator[object]:
    yield file
    kind = file.kind
    if kind in (Kind.SBATCH, Kind.SHELL):
        if len(file.text) > SHELL_MOST:
            most = f"{SHELL_MOST // 1024} KiB"
            raise InputError(f"{clean(file.path, 300)}: a script of more than {most} is not read")
        shell = _shell(file, opener)
        yield shell
        yield Settings(file, tuple(_settings_of_shell(shell)))
        yield from dict.fromkeys(program for _, program in shell.programs)
        for launch in shell.launches_of("sbatch"):
            found = opener(str(launch.rest[0]).rpartition("…")[2]) if launch.rest else None
            if found is not None and _is_batch(found[1]):
                yield _shell(Text(found[0], Kind.SBATCH, found[1]), opener, launch.options)
            elif launch.rest or not launch.has("wrap"):
                what = f"{launch.rest[0]}, which sbatch starts" if launch.rest else "what sbatch is given"
                shell.script.unread.append((launch.position, what))
    elif kind is Kind.PYTHON:
        yield parse_python(file.path, file.text)
    elif kind in (Kind.ENV, Kind.DEEPSPEED_ENV):
        yield Settings(file, tuple(_settings_of_env(file)))
    elif kind is Kind.HOSTFILE:
        lines = (re.split(r"(?:^|(?<=\s))#", line, maxsplit=1)[0].strip() for line in file.lines)
        yield Hosts(file, tuple((number, line) for number, line in enumerate(lines, 1) if line))
    elif kind is Kind.DOCKERFILE:
        dockerfile = Dockerfile(file, tuple(_instructions(file)))
        yield dockerfile
        yield Settings(file, tuple(_settings_of_dockerfile(dockerfile)))
    else:
        config = Config(file, tuple(documents(file.path, file.text)))
        yield config
        yield Settings(file, tuple(_settings_of_config(config)))


def _shell(file: Text, opener: _Opener, more: Sequence[Option] = ()) -> Shell:
    batch = file.kind is Kind.SBATCH
    request = read_request(file.lines, more) if batch else Request()
    script = parse(file.text, request.variables, opener)
    # Those in a here-document are of a file that is written there.
    request = replace(
        request, late=tuple(one for one in request.late if one.position.line in script.comments)
    )
    found = tuple(launches(script))
    return Shell(file, script, found, request, batch, tuple(_programs(file, script, found, opener)))


def _programs(
    file: Text, script: Script, found: Sequence[Launch], opener: _Opener
) -> Iterator[tuple[Launch, Python]]:
    """The Python programs that launches start, where they can be read."""
    known: dict[str, Python | None] = {}
    for launch in found:
        name = (launch.rest[0].value.pieces or ("",))[-1] if launch.rest else ""
        if not isinstance(name, str) or not name.endswith(".py") or launch.program in ("docker", "script"):
            continue
        if name not in known and len(known) < PROGRAMS_MOST:
            path, text = script.written.get(basename(name)) or opener(name) or ("", "")
            known[name] = parse_python(path or file.path, text) if text else None
        if (program := known.get(name)) is not None:
            yield launch, program


def _settings_of_shell(shell: Shell) -> Iterator[Setting]:
    for a in shell.script.assignments:
        sure = a.certain and a.exported and a.how != "command" and not a.level
        yield Setting(a.name, a.value, a.position, a.exported, a.level, a.literal, certain=sure)
    for word in [one.value for one in shell.request.options if one.name == "export"]:
        yield from _exports(word)
    for launch in shell.launches_of("srun", "sbatch", "salloc"):
        for word in launch.all("export"):
            yield from _exports(word)
    for command in shell.script.commands:
        if command.name == "ray":
            yield from _runtime_env(command.words)
    for launch in shell.launches_of("docker", "mpirun"):
        container = launch.program == "docker"
        for word in launch.all("env" if container else "x"):
            name, equals, rest = word.value.head.partition("=")
            if equals:
                value = join((rest, *word.value.pieces[1:]))
                yield Setting(name, value, word.position, container=container)


def _exports(word: Word | None) -> Iterator[Setting]:
    """``ALL,NAME=value,OTHER=value`` of Slurm; a value may hold commas in quotes."""
    text = word.text if word is not None else None
    for part in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^,])+", text or ""):
        name, equals, value = part.partition("=")
        if equals and name.isidentifier() and word is not None:
            yield Setting(name, text_value(value.strip("'\"")), word.position)


def _runtime_env(words: Sequence[Word]) -> Iterator[Setting]:
    """What ``ray job submit --runtime-env-json '{"env_vars": {…}}'`` sets."""
    for at, word in enumerate(words):
        name, equals, text = (word.text or "").partition("=")
        if name != "--runtime-env-json":
            continue
        if not equals:
            text = words[at + 1].text or "" if at + 1 < len(words) else ""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        variables = found.get("env_vars") if isinstance(found, dict) else None
        for key, value in variables.items() if isinstance(variables, dict) else ():
            if isinstance(value, str):
                yield Setting(key, text_value(value), word.position)


def _settings_of_env(file: Text) -> Iterator[Setting]:
    for number, line in enumerate(file.lines, 1):
        match = re.match(r"[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(.*)$", line)
        if match:
            text = match[2].strip()
            quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
            if not quoted:
                text = re.split(r"\s#", text, maxsplit=1)[0].strip()
            value = _template(text[1:-1] if quoted else text)
            yield Setting(match[1], value, Position(number, match.start(1) + 1))


def _template(text: str) -> Value:
    """A value in which whoever reads the file may fill in ``$NAME``: then it is unknown."""
    return Value((Hole(),)) if "$" in text or "{{" in text else text_value(text)


def _instructions(file: Text) -> Iterator[tuple[Position, str, str]]:
    """Instructions with their continued lines; bodies of here-documents are skipped."""
    lines, index = file.lines, 0
    while index < len(lines):
        start = index
        text = lines[index]
        index += 1
        match = re.match(r"[ \t]*([A-Za-z]+)[ \t]+(.*)$", text)
        if match is None or text.lstrip().startswith("#"):
            continue
        rest = match[2]
        while rest.rstrip().endswith("\\") and index < len(lines):
            following = lines[index]
            index += 1
            rest = rest.rstrip()[:-1] + ("" if following.lstrip().startswith("#") else "\n" + following)
        for marker in re.findall(r"<<-?[\"']?(\w+)", rest) if match[1].upper() in ("RUN", "COPY") else ():
            while index < len(lines) and lines[index].strip() != marker:
                index += 1
            index += 1
        yield Position(start + 1, match.start(1) + 1), match[1].upper(), rest


def _settings_of_dockerfile(dockerfile: Dockerfile) -> Iterator[Setting]:
    for position, rest in dockerfile.instructions_of("ENV"):
        if re.match(r"[A-Za-z_]\w*=", rest):
            found = re.findall(r"(?<!\w)([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)", rest)
            pairs = [(name, value.strip("\"'")) for name, value in found]
        else:
            name, _, value = rest.partition(" ")
            pairs = [(name, value.strip())]
        for name, value in pairs:
            yield Setting(name, _template(value), position, container=True)


def _settings_of_config(config: Config) -> Iterator[Setting]:
    """Variables that a compose file, a manifest or a Ray configuration sets."""
    for document in config.documents:
        for item in document.walk():
            if item.key == "env_vars" or (config.file.kind is Kind.COMPOSE and item.key == "environment"):
                yield from _environment(item)
            elif config.file.kind is Kind.KUBERNETES and item.key == "env":
                for entry in item.list():
                    name, value = entry.text_at("name"), entry.get("value")
                    if name and value is not None and value.text is not None:
                        yield Setting(name, _template(value.text), value.position, container=True)


def _environment(item: Item) -> Iterator[Setting]:
    for name, value in item.pairs():
        if value.text is not None:
            yield Setting(name, _template(value.text), value.position, container=True)
    for entry in item.list():
        name, equals, text = (entry.text or "").partition("=")
        if equals:
            yield Setting(name, _template(text), entry.position, container=True)
