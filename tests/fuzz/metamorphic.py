"""One cluster changed in a way whose effect on the verdict is known, and judged again.

Nodes get other names, addresses and places; healthy ones come in; faults go to other nodes, come together, or
are on two nodes: causes go with them, and nothing else is blamed. What could not be read is never greener.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from netdoctor.model import Status
from tests import machines
from tests.checks import build
from tests.fuzz import drawn
from tests.metamorphic import labs, moves, pairs
from tests.metamorphic.faults import FAULTS
from tests.metamorphic.world import Judgement, World, derive, difference, judged, judgement_of, known_faults

# Checks of the first node, which is the rendezvous: a fault that goes there has one more thing to say.
OF_MASTER = ("rdzv.", "net.ports")
BAD = (Status.WARN, Status.FAIL, Status.UNKNOWN)


def draw(rng: random.Random, most: int = 2) -> World:
    """A cluster in which most nodes are healthy; the first, where all peers meet, always is."""
    kind, count = rng.choice(machines.names()), rng.randint(5, 7)
    faults: dict[int, tuple[str, ...]] = {}
    for _ in range(rng.randint(0, most)):
        faults.setdefault(rng.randint(2, count), (rng.choice(known_faults(kind)),))
    return World(kind, count, faults)


def drawn_wild(rng: random.Random) -> World:
    """Machines of any kinds with anything wrong on any of them: nobody can tell what is to be said of it."""
    kinds = rng.choices(rng.sample(machines.names(), rng.randint(1, 3)), k=rng.randint(2, 6))
    faults = {}
    for number, kind in enumerate(kinds, 1):
        found = rng.sample(list(FAULTS), rng.choice((0, 0, 1, 2)))
        if "refuses_login" in found:  # nothing else is known of it then
            found = ["refuses_login"]
        elif rng.random() < 0.5:
            found.append(rng.choice(machines.load(kind).faults))
        faults[number] = tuple(found)
    return World(kinds[0], len(kinds), faults, tuple(kinds))


Causes = Mapping[tuple[str, str], frozenset[str]]


def moved(causes: Causes, names: Mapping[str, str]) -> dict[tuple[str, str], frozenset[str]]:
    def one(culprit: str) -> str:
        return "->".join(names.get(word, word) for word in culprit.split("->"))

    return {key: frozenset(map(one, culprits)) for key, culprits in causes.items()}


def assert_equal(
    before: Judgement, after: Judgement, names: Mapping[str, str], leave: tuple[str, ...] = ()
) -> None:
    """The same is said of each node under its new name. leave: starts of checks whose cells may differ."""
    message = f"\n{chr(10).join(before.titles)}\nnow\n{chr(10).join(after.titles)}"
    assert not (found := difference(moved(before.causes, names), after.causes)), found + message
    cells = {
        (check, names[node]): status
        for check, by_node in before.cells.items()
        for node, status in by_node.items()
        if not check.startswith(leave or ("-",))
    }
    now = {(check, node): after.cells[check].get(node) for check, node in cells}
    assert not (found := difference(cells, now)), found + message


def facts_are_written_differently(rng: random.Random) -> None:
    world = rng.choice((draw, drawn_wild, labs.drawn) if _LONG else (draw, drawn_wild))(rng)
    store = world.store() if isinstance(world, World) else world.store
    nodes = build.names(world.count) if isinstance(world, World) else list(labs.NODES)
    before = judged(store, nodes)
    names = moves.as_is(nodes)
    done = []
    try:
        for move in rng.sample(moves.MOVES, rng.randint(1, 4)):
            done.append(move.__name__)
            now = [names[node] for node in nodes]
            store, new = move(rng, store, now)
            names = {node: new[name] for node, name in names.items()}
        order = sorted(names.values(), key=lambda node: store.get("node", node).order)
        derive(store, order)
        after = judged(store, order)
        assert_equal(before, after, names)
        assert (before.state, before.code) == (after.state, after.code)
    except AssertionError as error:
        error.add_note(f"{world}: {' + '.join(done)}")
        raise


def fault_is_on_another_node(rng: random.Random) -> None:
    world = draw(rng)
    places = rng.sample(range(2, world.count + 1), len(world.faults))
    to = dict(zip(world.faults, places, strict=True))
    names = moves.as_is(build.names(world.count)) | {build.name(a): build.name(b) for a, b in to.items()}
    other = replace(world, faults={to[number]: faults for number, faults in world.faults.items()})
    rest_before = [n for n in build.names(world.count) if n not in {build.name(a) for a in to}]
    rest_after = [n for n in build.names(world.count) if n not in {build.name(b) for b in places}]
    names |= dict(zip(rest_before, rest_after, strict=True))
    noted(world, other, lambda: assert_equal(judgement_of(world), judgement_of(other), names, OF_MASTER))


def healthy_nodes_come_in(rng: random.Random) -> None:
    world = draw(rng)
    other = replace(world, count=rng.randint(world.count + 1, 9))
    noted(
        world,
        other,
        lambda: assert_equal(judgement_of(world), judgement_of(other), moves.as_is(build.names(world.count))),
    )


def cluster_comes_twice(rng: random.Random) -> None:
    kind, count = rng.choice(machines.names()), rng.choice((3, 4))
    fault = rng.choice([one for one in known_faults(kind) if one != "port_taken"])
    world = World(kind, count, {rng.randint(2, count): (fault,)})
    again = {number + world.count: faults for number, faults in world.faults.items()}
    other = replace(world, count=2 * world.count, faults={**world.faults, **again})

    def look() -> None:
        before, after = judgement_of(world), judgement_of(other)
        twin = {build.name(i): build.name(i + world.count) for i in range(1, world.count + 1)}
        both = {key: nodes | moved({key: nodes}, twin)[key] for key, nodes in before.causes.items()}
        assert not (found := difference(both, after.causes)), found

    noted(world, other, look)


def fault_is_on_two_nodes(rng: random.Random) -> None:
    kind, count = rng.choice(machines.names()), rng.randint(5, 8)
    name = rng.choice(known_faults(kind))
    one, two = rng.sample(range(2, count + 1), 2)
    world = World(kind, count, {one: (name,)})
    other = World(kind, count, {one: (name,), two: (name,)})

    def look() -> None:
        twin = {build.name(one): build.name(two)}
        causes = judgement_of(world).causes
        both = {key: nodes | moved({key: nodes}, twin)[key] for key, nodes in causes.items()}
        assert not (found := difference(both, judgement_of(other).causes)), found

    noted(world, other, look)


def two_faults(rng: random.Random) -> None:
    """On one node or on two: causes are those of each, and nothing else is blamed."""
    kind, count = rng.choice(machines.names()), rng.randint(5, 7)
    a, b = rng.sample(known_faults(kind), 2)
    one, two = rng.choices(range(2, count + 1), k=2)
    if one == two and not pairs.is_ready(kind, a, b):
        two = rng.choice([number for number in range(2, count + 1) if number != one])
    noted(None, pairs.world(kind, count, one, a, two, b), lambda: pairs.hold(kind, count, one, a, two, b))


def two_faults_of_a_lab(rng: random.Random) -> None:
    """The same, as real nodes answered: each fault on a node of its own."""
    one, other, node = labs.pair(rng)
    lost = {"ssh-", "peer-name"}
    if all(any(key.startswith(tuple(lost)) for key, _ in r.causes) for r in (one, other)):
        return  # nobody asks what the name of a node means that nobody gets into
    try:
        singles = [labs.judgement_alone(one, one.node), labs.judgement_alone(other, node)]
        pairs.union_is(singles, labs.judgement_of(labs.both(one, other, node)))
    except AssertionError as error:
        error.add_note(f"{one} and {other} on {node}")
        raise


def less_is_known(rng: random.Random) -> None:
    """Never greener: no verdict turns ready, and no cell of such a node passes that did not."""
    world = draw(rng)
    store, nodes = world.store(), build.names(world.count)
    before = judged(store, nodes)
    store, lost = moves.with_less(rng, store, nodes)
    derive(store, nodes)
    try:
        after = judged(store, nodes)
        message = f"{before.state} {before.titles}, now {after.state} {after.titles}"
        # A check that nobody needs (path MTU: UDP may be filtered) leaves a question, and no verdict open.
        open_question = any(group.status is Status.UNKNOWN for group in after.groups)
        if after.state == "ready" and before.state != "ready":
            assert open_question, message
            assert not _stops(before), message
        for node in {node for _, node in lost} & set(nodes):
            for check, cells in after.cells.items():
                if before.cells[check][node] in BAD:
                    assert cells[node] is not Status.PASS, f"{check} of {node} passes; {message}"
    except AssertionError as error:
        error.add_note(f"{world} without {lost}")
        raise


def _stops(found: Judgement) -> bool:
    """Whether a check that is required has something against the launch."""
    needed = [check.id for check in found.judgement.checks if check.required]
    return any(
        found.cells[check].get(node) is Status.FAIL for check in needed for node in found.judgement.nodes
    )


def noted(world: World | None, other: World, look: Callable[[], None]) -> None:
    try:
        look()
    except AssertionError as error:
        error.add_note(f"{f'{world}, then ' if world else ''}{other}")
        raise


RELATIONS: dict[Callable[[random.Random], None], int] = {
    facts_are_written_differently: 6,
    two_faults: 4,
    two_faults_of_a_lab: 4,
    less_is_known: 4,
    fault_is_on_another_node: 2,
    healthy_nodes_come_in: 2,
    cluster_comes_twice: 1,
    fault_is_on_two_nodes: 2,
}


# Set once a run has the seconds to read all scans of the lab and to ask machines with two faults.
_LONG: set[str] = set()


def case(rng: random.Random) -> None:
    relation = rng.choices(list(RELATIONS), list(RELATIONS.values()))[0]
    if relation is two_faults_of_a_lab and not _LONG:
        relation = two_faults
    try:
        relation(rng)
    except Exception as error:
        error.add_note(relation.__name__)
        raise


def run(seed: int, seconds: float) -> int:
    """As `drawn`."""
    known = [machines.load(name) for name in machines.names()]
    machines.ready([*known, *(one.broken(fault) for one in known for fault in one.faults)])
    if seconds >= 30:
        _LONG.add("run")
        pairs.ask_all()
    return drawn("metamorphic", case, seed, seconds)
