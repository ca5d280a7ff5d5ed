"""What a saved report says of a word: the reader's own values and results, folded over nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from netdoctor.explain.words import Word
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
    """A report at hand. name: of it, for people. nodes: in the order of ranks. letters[check][node]: of the
    statuses. gpus: by node, where known. meeting: where ranks meet, by variable."""

    name: str
    nodes: Sequence[str]
    letters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    meeting: Mapping[str, str] = field(default_factory=dict)
    store: Store = field(default_factory=Store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """nodes: all that say so."""

    text: str
    nodes: tuple[str, ...] = ()

    def said(self, every: int) -> str:
        where = f"all {every} nodes" if len(self.nodes) == every > 1 else clean(fold(self.nodes, 60), 60)
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
    seen: dict[str, list[str]] = {}
    asked = 0
    for node in near.nodes:
        login = near.store.get("env", node)
        if not isinstance(login, EnvFacts):
            continue
        asked += 1
        env = effective_env(login, job)
        mine = sorted(name for name in env if _is_of(word, name))
        for name in mine:
            one = env[name]
            value = (
                f"{name}={one.value}" if word.is_prefix or name != word.name else f"{one.value or '(empty)'}"
            )
            seen.setdefault(clean(f"{value} ({one.origin})", 160), []).append(node)
        if not mine:
            seen.setdefault("unset", []).append(node)
    if asked:
        return [Value(text=text, nodes=tuple(nodes)) for text, nodes in seen.items()]
    return []


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
        each = sorted(set(near.gpus.values()))
        told = f"{each[0]} each" if len(each) == 1 else f"{each[0]} to {each[-1]}"
        world = sum(near.gpus.values())
        yield Value(text=f"{world} GPUs, {told}: world size {world} with one process a GPU")
