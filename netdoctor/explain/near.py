"""What a saved report says of a word: the reader's own values and results, folded over nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from netdoctor.explain.glossary import Word
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.inventory.nodeset import fold
from netdoctor.model import BY_LETTER
from netdoctor.rules.variables import effective_env
from netdoctor.store import Store
from netdoctor.text import clean

COUNTS = (
    "ranks",
    "node_rank",
    "WORLD_SIZE",
    "--nnodes",
    "--nproc-per-node",
    "--node-rank",
    "RANK",
    "LOCAL_RANK",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A report at hand."""

    name: str  # for people
    nodes: Sequence[str]  # in the order of ranks
    letters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of statuses: [check][node]
    gpus: Mapping[str, int] = field(default_factory=dict)  # by node, where known
    meeting: Mapping[str, str] = field(default_factory=dict)  # where ranks meet, by variable
    store: Store = field(default_factory=Store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A text, and all nodes that it is true of."""

    text: str
    nodes: tuple[str, ...] = ()

    def describe(self, total: int) -> str:
        where = f"all {total} nodes" if len(self.nodes) == total > 1 else clean(fold(self.nodes, 60), 60)
        return f"{self.text} on {where}" if self.nodes else self.text


def values(word: Word, near: Near) -> list[Value]:
    """The reader's own values of a variable, or what the numbers of the launch are on these nodes."""
    found: list[Value] = []
    if word.kind == "variable":
        found += _variables(word, near)
    if word.name in near.meeting:
        found.append(Value(text=clean(f"{near.meeting[word.name]} (what the scan used)", 120)))
    if word.name in COUNTS:
        found += _counts(near)
    return found


def status(check: str, near: Near) -> list[Value]:
    """The results of a check, the bad ones first."""
    groups: dict[str, list[str]] = {}
    for node, letter in near.letters.get(check, {}).items():
        if letter in BY_LETTER:
            groups.setdefault(letter, []).append(node)
    worst = sorted(groups, key=lambda letter: -BY_LETTER[letter].rank)
    return [Value(text=BY_LETTER[letter].value, nodes=tuple(groups[letter])) for letter in worst]


def _variables(word: Word, near: Near) -> Iterable[Value]:
    job = near.store.cluster_fact("job")
    job = job if isinstance(job, Job) else Job()
    nodes_of: dict[str, list[str]] = {}
    for node in near.nodes:
        login = near.store.get("env", node)
        if not isinstance(login, EnvFacts):
            continue
        env = effective_env(login, job)
        names = sorted(name for name in env if _is_of(word, name))
        for name in names:
            value = env[name].value
            text = f"{name}={value}" if name != word.name else value or "(empty)"
            nodes_of.setdefault(clean(f"{text} ({env[name].origin})", 160), []).append(node)
        if not names:
            nodes_of.setdefault("unset", []).append(node)
    return [Value(text=text, nodes=tuple(nodes)) for text, nodes in nodes_of.items()]


def _is_of(word: Word, name: str) -> bool:
    return any(name == way or (way.endswith("_") and name.startswith(way)) for way in (word.name, *word.also))


def _counts(near: Near) -> Iterable[Value]:
    if not near.nodes:
        return
    first, amount = clean(near.nodes[0], 60), len(near.nodes)
    yield Value(
        text=f"{amount} node{'s' * (amount != 1)}, in the order of the hosts file; node rank 0 is {first}"
    )
    if len(near.gpus) == amount and all(near.gpus.values()):
        least, most, world = min(near.gpus.values()), max(near.gpus.values()), sum(near.gpus.values())
        each = f"{least} each" if least == most else f"{least} to {most}"
        yield Value(text=f"{world} GPUs, {each}: world size {world} with one process per GPU")
