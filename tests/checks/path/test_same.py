from typing import Any

from netdoctor.checks.path.same import path_same
from netdoctor.facts.places import Place
from netdoctor.model import Finding, Status

from ..build import causes, found, hosts, job, name, place, places

PATH = "/srv/code"
HEAD, OTHER = "a" * 40, "b" * 40
FOLDER: dict[str, Any] = {"kind": "directory", "size_bytes": None, "digest": "d1", "entries_total": 2}
TREE: dict[str, Any] = {**FOLDER, "entries": {"train.py": "t1", "conf.yaml": "c1"}}


def at(i: int, **changes: Any) -> Place:
    # Disks of their own: what is behind one inode is not compared with itself.
    return place(PATH, **{"inode": str(i), **changes})


def judged(*nodes: Place) -> list[Finding]:
    facts = {name(i): places(one) for i, one in enumerate(nodes, 1)}
    return list(path_same(facts, hosts(len(nodes)), job(len(nodes), paths=(PATH,))))


def changed(**entries: str) -> dict[str, Any]:
    return {**TREE, "entries": {"train.py": "t1", "conf.yaml": "c1", **entries}}


NFS = {"fs_type": "nfs4", "source": "10.0.0.5:/x", "network": True, "inside": "/x"}
SILENT = [
    [at(1), at(2), at(3)],
    [at(1, **TREE), at(2, **TREE)],
    [at(1, revision=HEAD, **TREE), at(2, revision=HEAD, **TREE)],
    [at(1)],
    # One directory, written to between two looks.
    [at(7, **NFS, **changed(a="1")), at(7, **NFS, **changed(a="2"))],
]
# The roots of two sandboxes: the same words, and nothing that makes them one.
SANDBOX = {"fs_type": "9p", "source": "none", "network": True, "inside": "/x"}
SPEAKING: list[tuple[list[Place], str, Status, set[str], str]] = [
    ([at(1), at(2), at(3, digest="bb")], "path-file", Status.FAIL, {"n3"}, "SHA-256 bb"),
    ([at(1), at(2), at(3, size_bytes=9)], "path-file", Status.FAIL, {"n3"}, "9 bytes"),
    (
        [at(7, changed="1", **SANDBOX), at(7, changed="2", digest="bb", **SANDBOX)],
        "path-file", Status.FAIL, {"n1", "n2"}, "aa on n1; ",
    ),
    ([at(1), at(2, digest="bb")], "path-file", Status.FAIL, {"n1", "n2"}, "aa on n1; "),
    ([at(1), at(2), at(3, **FOLDER)], "path-file", Status.FAIL, {"n3"}, "a directory here"),
    ([at(1), at(2), at(3, error="ENOENT")], "path-missing", Status.FAIL, {"n3"}, "exists on n1 and n2"),
    ([at(1, error="ENOENT"), at(2, error="ENOTDIR")], "path-missing", Status.FAIL, {"n1", "n2"}, "exist"),
    (
        [at(1, revision=HEAD, **TREE), at(2, revision=HEAD, **TREE), at(3, revision=OTHER, **TREE)],
        "path-revision", Status.FAIL, {"n3"}, "bbbbbbbbbbbb here",
    ),
    (
        [at(1, revision=HEAD, **TREE), at(2, revision=HEAD, **TREE), at(3, **TREE)],
        "path-revision", Status.FAIL, {"n3"}, "none here",
    ),
    (
        [at(1, **TREE), at(2, **TREE), at(3, revision=HEAD, **TREE)],
        "path-revision", Status.FAIL, {"n3"}, "aaaaaaaaaaaa here, none",
    ),
    # Not committed: the revision does not tell.
    (
        [at(1, revision=HEAD, **TREE), at(2, revision=HEAD, **TREE),
         at(3, revision=HEAD, **changed(**{"train.py": "t2"}))],
        "path-entries", Status.WARN, {"n3"}, "train.py",
    ),
    ([at(1, **TREE), at(2, **TREE), at(3, **changed(new="x"))], "path-entries", Status.WARN, {"n3"}, "new"),
    ([at(1, **TREE), at(2, **changed(new="x"))], "path-entries", Status.WARN, {"n2"}, "new"),
    (
        [at(1, **TREE), at(2, **TREE), at(3, **{**TREE, "digest": "d2", "entries_total": 70})],
        "path-entries", Status.WARN, {"n3"}, "70 entries, not 2",
    ),
]  # fmt: skip


def test_silent_where_all_have_the_same() -> None:
    for nodes in SILENT:
        assert judged(*nodes) == [], nodes


def test_names_who_has_another() -> None:
    for nodes, key, status, odd, words in SPEAKING:
        findings = judged(*nodes)
        assert causes(findings) == {f"{key}-srv-code": odd | ({"n1"} if len(nodes) == 2 else set())}, nodes
        assert {one.status for one in findings} == {status}, nodes
        assert words in findings[0].summary, findings[0].summary
        if len(nodes) == 3:
            assert findings[0].cause
            assert "compare it with n1," in findings[0].cause.fixes[0].text, nodes


def test_says_what_it_did_not_look_at() -> None:
    findings = judged(at(1, sampled=True, **TREE), at(2, sampled=True, **TREE))
    assert [one.status for one in findings] == [Status.PASS] * 2
    assert "as far as it was read" in findings[0].summary
    findings = judged(at(1), at(2), at(3, error="hangs"))
    assert {node: one.status for node, one in found(findings).items()} == {"n3": Status.UNKNOWN}


def test_skips_without_a_path() -> None:
    (finding,) = path_same({"n1": places()}, hosts(1), job(1))
    assert finding.status is Status.SKIP


def test_a_path_of_which_a_node_says_nothing() -> None:
    both = job(2, paths=(PATH,))
    (finding,) = path_same({"n1": places(at(1)), "n2": places()}, hosts(2), both)
    assert (finding.target, finding.status) == ("n2", Status.UNKNOWN)
    assert finding.summary == f"{PATH}: the node did not report it"
    # One that was named twice is told under one name.
    twice = job(1, paths=("~/x", "/root/x", "~"))
    here = [place("/root/x", asked="/root/x"), place("/root", asked="~")]
    assert list(path_same({"n1": places(*here)}, hosts(1), twice)) == []
