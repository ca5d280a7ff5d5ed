from typing import Any

from netdoctor.checks._shared.positions import cause_at
from netdoctor.checks.fs.write import fs_write, groups
from netdoctor.facts.places import HUNG
from netdoctor.facts.sharing import SharedRead, SharedWrite, Sharing
from netdoctor.measure.sharing import plan
from netdoctor.model import Cause, Finding, Status

from ..build import cause, causes, found, job, names

PATH = "/data/it's here"
KEY = cause_at(Cause("", ""), PATH).key
ERRORS = {
    "EROFS": "share-read-only", "ENOSPC": "share-full", "EDQUOT": "share-full", "EACCES": "share-denied",
    "EPERM": "share-denied", "ENOENT": "share-missing", "ENOTDIR": "share-missing", HUNG: "share-hangs",
    "EIO": "share-not-written",
}  # fmt: skip


def judged(
    folders: str, errors: dict[str, str] | None = None, reads: dict[tuple[str, str], Any] | None = None
) -> list[Finding]:
    """Of nodes that each see the folder of their letter, and read each other's files as the plan has it.

    errors: of writes, ``folder EIO`` for one that could not be opened. reads: errors or seconds of (reader,
    writer).
    """
    nodes = names(len(folders))
    of = dict(zip(nodes, folders, strict=True))
    writes = []
    for node in nodes:
        *step, error = (errors or {}).get(node, "").split(" ")
        kind = "folder" if step else "create" if error else ""
        writes.append(SharedWrite(node=node, path=PATH, error=error, step=kind, uid=0, place="nfs4 x:/e"))
    opened = [one.node for one in writes if one.step != "folder"]
    rows = []
    for reader, others in plan(opened, [one.node for one in writes if not one.error]).items():
        for writer in others:
            said = (reads or {}).get((reader, writer), "" if of[reader] == of[writer] else "ENOENT")
            more = {"error": said} if isinstance(said, str) else {"after_s": said}
            rows.append(SharedRead(path=PATH, reader=reader, writer=writer, **more))
    sharing = Sharing(writes=tuple(writes), reads=tuple(rows), names=".netdoctor-write-" + "0" * 32 + "-*")
    return list(fs_write(sharing, job(len(nodes), write_test=(PATH,))))


def keyed(findings: list[Finding]) -> dict[str, set[str]]:
    return {key.removesuffix(KEY): nodes for key, nodes in causes(findings).items()}


def test_who_sees_another_folder() -> None:
    for folders, wrong in (
        ("a", {}),
        ("aa", {}),
        ("aaaaaa", {}),
        ("aab", {"share-apart": {"n3"}}),
        ("baaaa", {"share-apart": {"n1"}}),
        ("bcaaaa", {"share-apart": {"n1", "n2"}}),
        ("abaaca", {"share-apart": {"n2", "n5"}}),
        ("bbaaa", {"share-apart": {"n1", "n2"}}),
        ("ab", {"share-split": {"cluster"}}),
        ("abcd", {"share-split": {"cluster"}}),
        ("aabb", {"share-split": {"cluster"}}),
    ):
        findings = judged(folders)
        assert keyed(findings) == wrong, folders
        assert all(one.status in (Status.FAIL, Status.PASS) for one in findings)
        assert (f"{len(folders)} nodes wrote" in "".join(one.summary for one in findings)) is (
            not wrong and len(folders) > 1
        )
    (apart,) = judged("aab")
    assert "'/data/it'\"'\"'s here'" in cause([apart], f"share-apart{KEY}").fixes[0].commands[0].shell


def test_who_cannot_write_still_shows_which_folder_it_sees() -> None:
    for error, key in ERRORS.items():
        for errors in ({"n2": error}, {"n2": f"folder {error}"}):
            findings = judged("aaaa", errors)
            assert keyed(findings) == {key: {"n2"}}, error
            assert found(findings)["n2"].status is Status.FAIL
        # Nobody can: one cause of all, and nothing is said of who shares what.
        assert keyed(judged("aaa", dict.fromkeys(names(3), f"folder {error}"))) == {key: set(names(3))}
    assert keyed(judged("aaba", {"n3": "EROFS"})) == {"share-read-only": {"n3"}, "share-apart": {"n3"}}
    assert "no_root_squash" in judged("aa", {"n2": "EACCES"})[0].summary


def test_what_is_seen_late_or_by_others_alone() -> None:
    for said, key, status in (
        ("EACCES", "share-not-readable", Status.FAIL),
        ("ENOENT", "share-late", Status.WARN),
        ("other bytes", "share-other-bytes", Status.FAIL),
        ("EIO", "share-unread", Status.FAIL),
    ):
        findings = judged("aaaa", reads={("n4", "n1"): said})
        assert keyed(findings) == {key: {"n4"}}, said
        assert {one.status for one in findings} == {status}
    (fine,) = judged("aaaa", reads={("n3", "n1"): 31.4})
    assert fine.status is Status.PASS
    assert "the last of them after 31 s" in fine.summary


class Counted(str):
    """A name that counts how often a dictionary is asked about any."""

    hashes = 0

    def __hash__(self) -> int:
        Counted.hashes += 1
        return super().__hash__()


def test_groups_grow_with_the_nodes_and_no_faster() -> None:
    def work(count: int) -> int:
        nodes = [Counted(node) for node in names(count)]
        plans = plan(nodes, nodes).items()
        reads = [SharedRead(path=PATH, reader=a, writer=b) for a, others in plans for b in others]
        Counted.hashes = 0
        assert groups(nodes, reads[::-1]) == [nodes]
        return Counted.hashes

    assert work(400) < 5 * work(100)


def test_what_was_not_measured_is_not_green() -> None:
    assert [one.status for one in fs_write(Sharing(), job(2))] == [Status.SKIP]
    asked = job(2, write_test=(PATH,))
    lost = fs_write(Sharing(failed_nodes={"n1": "gone"}), asked)
    assert found(list(lost), Status.UNKNOWN).keys() == {"n1"}
    # Those whose sessions ended before anybody read are not said to see another folder.
    writes = tuple(SharedWrite(node=node, path=PATH, place="local") for node in names(4))
    gone = {"n3": "gone", "n4": "gone"}
    everybody = dict.fromkeys(names(4), "gone")
    assert not causes(list(fs_write(Sharing(writes=writes, failed_nodes=everybody), asked)))
    reads = tuple(SharedRead(path=PATH, reader=a, writer=b) for a, b in (("n1", "n2"), ("n2", "n1")))
    findings = list(fs_write(Sharing(writes=writes, reads=reads, failed_nodes=gone), asked))
    assert (causes(findings), found(findings, Status.UNKNOWN).keys()) == ({}, {"n3", "n4"})
    assert "2 nodes wrote" in findings[-1].summary
    name = ".netdoctor-write-" + "a" * 32 + "-*"
    left = Sharing(left={"n2": {PATH: "EIO"}}, names=name)
    (fix,) = cause(list(fs_write(left, asked)), f"share-left{KEY}").fixes
    assert fix.commands[0].shell == f"rm -f '/data/it'\"'\"'s here'/{name}"
