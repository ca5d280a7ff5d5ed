"""Folding, writing out, and expressions, held against ClusterShell."""

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.inventory import InventoryError, expand, fold, load, restrict
from netdoctor.inventory.nodeset import SyntaxFault, evaluate
from tests.counting import calls
from tests.hostile import HOSTILE, each_of, steers_a_terminal


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ("n1", "n1"),
        ("n[1-3]", "n1 n2 n3"),
        ("n[01-03]", "n01 n02 n03"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[01-100]", " ".join(f"n{i:02}" for i in range(1, 101))),
        ("n[0-9/3]", "n0 n3 n6 n9"),
        ("n[3,1-2]", "n3 n1 n2"),
        ("b2,a1", "b2 a1"),
        ("node[01-02,20],b2", "node01 node02 node20 b2"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("n[1-2].example.com", "n1.example.com n2.example.com"),
        ("n[1-2]:2222", "n1:2222 n2:2222"),
        ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
        ("[::1]:22,::2", "[::1]:22 ::2"),
        ("n1, n2", "n1 n2"),
        ("n1,n1", "n1 n1"),
    ],
)
def test_expand_keeps_the_order_written(expr: str, names: str) -> None:
    assert expand(expr) == names.split()


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("n[1-", "'[' without ']'"),
        ("n1-3]", "']' without '['"),
        ("n[]", "number missing"),
        ("n[1,]", "number missing"),
        ("n[1-2-3]", "not a range"),
        ("n[a-c]", "not a range"),
        ("n[3-1]", "write: [1-3]"),
        ("n[1-016]", "write: [001-016]"),
        ("n[01:16]", "write: [01-16]"),
        ("n[1..3]", "gpu[01-16]"),
        ("n[[1-2]]", "bracket inside"),
        ("n[1-5/0]", "step of 0"),
        ("n[1-\u0663]", "not a range"),
        ("n[1-20001]", "20001 names"),
        ("n[1-200][1-200]", "40000 names"),
        ("n[1-15000],m[1-15000]", "15000 names"),
        ("n[1][1][1][1][1]", "more than 4"),
        ("", "name missing"),
        ("n1,,n2", "name missing"),
        ("n1 n2", "space"),
    ],
)
def test_expand_says_what_is_wrong(expr: str, words: str) -> None:
    with pytest.raises(InventoryError) as caught:
        expand(expr)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["gpu-a01", "gpu-a02", "gpu-a04"], "gpu-a[01-02,04]"),
        (["n2", "n1", "n2"], "n[1-2]"),
        (["n09", "n10"], "n[09-10]"),
        (["n1:2222", "n2:2222"], "n[1-2]:2222"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["fe80::1", "fe80::2"], "fe80::1,fe80::2"),
        (["a,b", "c"], "c,a,b"),
        (["n[1-2]"], "n[1-2]"),
        (["n1", "@all", "x y"], "n1,@all,x y"),
        (["n1", "n01", "n001", "n2", "n10", "n9"], "n[1-2,9,01,10,001]"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r[1-2]n[1-2]"),
        (["r1n1", "r2n1", "r2n2", "r3n2"], "r[1-2]n1,r[2-3]n2"),
        (["a1b2", "a1b3", "a2b2", "c", "b", "a10", "a9"], "a[9-10],a1b[2-3],a2b2,b,c"),
        (["n" + "1" * 20, "n" + "1" * 19 + "2"], f"n{'1' * 18}[11-12]"),
    ],
)
def test_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def test_fold_shortens_between_names_and_counts_all() -> None:
    names = [f"gpu-a{i:03}" for i in (*range(1, 41), *range(42, 240, 2))]
    text = fold(names, limit=60)
    assert text.startswith("gpu-a[001-040,042,")
    assert text.endswith(",...] (139 nodes)")
    assert len(text.partition(" (")[0]) <= 60
    assert fold(names[:40], limit=60) == "gpu-a[001-040]"
    assert fold(["a" * 30, "b" * 30, "c" * 30], limit=40) == f"{'a' * 30},... (3 nodes)"
    assert fold(["a" * 90], limit=20) == f"{'a' * 17}... (1 node)"


NAMES = st.from_regex(
    r"[a-z]{1,2}-?(?:[0-9]{1,3}|0[0-9])?(?:[a-z][0-9]{1,2})?(?:\.[a-z]{1,3})?(?::[1-9][0-9]{0,3})?",
    fullmatch=True,
)


@pytest.mark.thorough
@given(st.lists(NAMES))
def test_fold_then_expand_gives_the_same_names(names: list[str]) -> None:
    if names:
        assert sorted(expand(fold(names))) == sorted(set(names))


@pytest.mark.thorough
@given(st.lists(st.integers(0, 40_000), min_size=500, max_size=900, unique=True))
@settings(max_examples=10, deadline=None)
def test_large_lists_fold_to_the_same_names(numbers: list[int]) -> None:
    names = [f"rack{n % 7}n{n:03}" for n in numbers]
    assert sorted(expand(fold(names))) == sorted(names)


@pytest.mark.thorough
@given(st.lists(st.tuples(st.integers(8, 12), st.integers(0, 4)), max_size=12), st.sampled_from(["", "0"]))
@settings(deadline=None)
def test_fold_is_clustershells_where_one_number_varies_or_all_do(
    pairs: list[tuple[int, int]], pad: str
) -> None:
    ours = [f"a{pad}{first:02}" for first, _ in pairs] + [f"b{second}" for _, second in pairs]
    assert fold(ours) == str(NodeSet.fromlist(ours, resolver=RESOLVER_NOGROUP))
    square = [f"r{first}n{second}" for first in {f for f, _ in pairs} for second in {s for _, s in pairs}]
    assert fold(square) == str(NodeSet.fromlist(square, resolver=RESOLVER_NOGROUP))


def test_large_regular_lists_fold_to_one_range() -> None:
    assert fold([f"gpu{i:04}" for i in range(10_000)]) == "gpu[0000-9999]"
    assert fold([f"gpu{i:03}.c5.example" for i in range(900)]) == "gpu[000-899].c5.example"


@pytest.mark.thorough
def test_folding_scattered_addresses_is_not_cubic() -> None:
    names = [f"10.{i * 7919 % 4}.{i * 104729 % 251}.{i * 31 % 241}" for i in range(10_000)]
    # ClusterShell takes minutes.
    assert calls(lambda: fold(names)) < 4.5 * calls(lambda: fold(names[:2500]))


@given(st.lists(st.text()))
def test_fold_takes_any_text(names: list[str]) -> None:
    fold(names)
    fold(names, limit=10)


@given(st.text(alphabet="n1023[]-,/:. \u0660") | st.text())
def test_expand_raises_only_its_own_error(expr: str) -> None:
    message = ""
    try:
        expand(expr)
    except InventoryError as error:
        message = str(error)
    assert not steers_a_terminal(message)


PATTERN = st.builds(
    lambda letter, low, more, pad: f"{letter}[{low:0{pad}}-{low + more:0{pad}}]",
    st.sampled_from("ab"),
    st.integers(0, 12),
    st.integers(0, 5),
    st.integers(1, 3),
)


@given(st.lists(PATTERN, min_size=1, max_size=4))
def test_expand_agrees_with_clustershell(patterns: list[str]) -> None:
    expr = ",".join(patterns)
    assert set(expand(expr)) == set(NodeSet(expr, resolver=RESOLVER_NOGROUP))


@given(PATTERN, st.lists(st.tuples(st.sampled_from(",!&^"), PATTERN), max_size=4))
def test_expressions_agree_with_clustershell(first: str, rest: list[tuple[str, str]]) -> None:
    expr = first + "".join(operator + pattern for operator, pattern in rest)
    ours = evaluate(expr, [], lambda name: [name])
    assert ours == set(NodeSet(expr, resolver=RESOLVER_NOGROUP))


INVENTORY = load(["gpu[01-08]", "login", "c1:2222", "c1:2223", "[fe80::1%eth0]:22"])


@pytest.mark.parametrize(
    ("expr", "ids"),
    [
        ("gpu03", "gpu03"),
        ("gpu[03-04],login", "gpu03 gpu04 login"),
        ("login,gpu01", "gpu01 login"),
        ("gpu*!gpu[01-06]", "gpu07 gpu08"),
        ("gpu[01-04]&gpu[03-08]", "gpu03 gpu04"),
        ("gpu0? ! gpu08", "gpu01 gpu02 gpu03 gpu04 gpu05 gpu06 gpu07"),
        ("c1", "c1:2222 c1:2223"),
        ("c1:2223", "c1:2223"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("[fe80::1%eth0]:22", "fe80::1%eth0"),
    ],
)
def test_restrict_selects_in_listed_order(expr: str, ids: str) -> None:
    assert restrict(INVENTORY, expr) == tuple(ids.split())


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("gpu3", "did you mean gpu0"),
        ("gpu[07-09]", "'gpu09': not in the list"),
        ("gpu[10-20]", "'gpu[10-20]': not in the list of hosts   (listed: c1:[2222-2223],gpu[01-08]"),
        ("gpu01!nope", "'nope': not in the list"),
        ("gpu01!gpu01", "leaves no node"),
        ("x*", "matches none"),
        ("gpu*[1-2]", "wildcard and a range"),
        ("@all", "no such group"),
        ("", "name missing"),
    ],
)
def test_restrict_refuses(expr: str, words: str) -> None:
    with pytest.raises(InventoryError) as caught:
        restrict(INVENTORY, expr)
    assert words in str(caught.value)


@each_of(HOSTILE.keys() - {"shell-glob"})
def test_restrict_refuses_the_hostile_corpus(attack: str) -> None:
    with pytest.raises(InventoryError) as caught:
        restrict(INVENTORY, HOSTILE[attack])
    assert not steers_a_terminal(str(caught.value))


def test_expression_faults_carry_their_piece() -> None:
    with pytest.raises(SyntaxFault) as caught:
        evaluate("a,b[1-", [], lambda name: [name])
    assert caught.value.token == "a,b[1-"
