"""From bytes to what rules read: which kind of file it is, and one object for each way to look at it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from netdoctor.errors import InputError
from netdoctor.files import read_regular, reason
from netdoctor.lint.documents import Item, documents
from netdoctor.lint.launches import Launch, launches
from netdoctor.lint.model import Kind, Position
from netdoctor.lint.slurm import Request, Step, read_request, step
from netdoctor.lint.syntax import parse
from netdoctor.lint.values import Hole, Script, Value, join, text_value
from netdoctor.tables import names
from netdoctor.text import clean

FILE_MOST = 1024 * 1024
SHELL_MOST = 128 * 1024
LINE_MOST = 64 * 1024

_SHEBANG = re.compile(r"#!.*\b(ba|da|z|k)?sh\b")
_LAUNCHER = re.compile(
    r"\b(torchrun|srun|mpirun|deepspeed|accelerate launch|ray start|docker run|torch\.distributed)\b"
)
_HOST_LINE = re.compile(r"[\w.@-]+[ \t]+(max[-_])?slots[ \t]*=")
_OTHERS = tuple(names(".py .c .cc .cpp .cu .h .md .rst .html .ipynb .toml .ini .cfg .log"))
_SETTING = re.compile(r"[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Text:
    """A file as text."""

    path: str  # as it was given
    kind: Kind
    text: str
    crlf: bool = False  # its lines ended in carriage return and line feed

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


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


def read(path: str, kind: Kind | None, content: bytes | None = None) -> Read:
    """Read one file. Raises InputError where it is none that can be read."""
    name = clean(path, 300)
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
    return Read(file, list(_views(file)))


def kind_of(path: str, text: str) -> Kind | None:
    """The kind of a file by its name, then by its text."""
    name = PurePath(path).name.lower()
    if name.endswith((".yaml", ".yml", ".json")):
        return _kind_of_config(text)
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
    keys = set(re.findall(r"^(?:- )?[\"']?([A-Za-z_]\w*)[\"']?[ \t]*:", text, re.MULTILINE))
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
    if keys & {"train_micro_batch_size_per_gpu", "zero_optimization", "train_batch_size"}:
        return Kind.DEEPSPEED
    return None


def _views(file: Text) -> Iterator[object]:
    yield file
    kind = file.kind
    if kind in (Kind.SBATCH, Kind.SHELL):
        if len(file.text) > SHELL_MOST:
            most = f"{SHELL_MOST // 1024} KiB"
            raise InputError(f"{clean(file.path, 300)}: a script of more than {most} is not read")
        shell = _shell(file)
        yield shell
        yield Settings(file, tuple(_settings_of_shell(shell)))
    elif kind in (Kind.ENV, Kind.DEEPSPEED_ENV):
        yield Settings(file, tuple(_settings_of_env(file)))
    elif kind is Kind.HOSTFILE:
        lines = (re.split(r"(?:^|(?<=\s))#", line, maxsplit=1)[0].strip() for line in file.lines)
        yield Hosts(file, tuple((number, line) for number, line in enumerate(lines, 1) if line))
    elif kind is Kind.DOCKERFILE:
        found = Dockerfile(file, tuple(_instructions(file)))
        yield found
        yield Settings(file, tuple(_settings_of_dockerfile(found)))
    else:
        config = Config(file, tuple(documents(file.path, file.text)))
        yield config
        yield Settings(file, tuple(_settings_of_config(config)))


def _shell(file: Text) -> Shell:
    batch = file.kind is Kind.SBATCH
    request = read_request(file.lines) if batch else Request()
    script = parse(file.text, request.variables)
    # Those in a here-document are of a file that is written there.
    request = replace(
        request, late=tuple(one for one in request.late if one.position.line in script.comments)
    )
    return Shell(file, script, tuple(launches(script)), request, batch)


def _settings_of_shell(shell: Shell) -> Iterator[Setting]:
    for a in shell.script.assignments:
        yield Setting(a.name, a.value, a.position, a.exported, a.level, a.literal)
    for launch in shell.launches_of("docker", "mpirun"):
        container = launch.program == "docker"
        for word in launch.all("env" if container else "x"):
            name, equals, rest = word.value.head.partition("=")
            if equals:
                value = join((rest, *word.value.pieces[1:]))
                yield Setting(name, value, word.position, container=container)


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
