from dataclasses import replace
from typing import Any

from netdoctor.checks.fs.shared import fs_shared
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.places import Place, PlaceFacts
from netdoctor.model import Finding, Status

from ..build import causes, hosts, job, name, place, places

NFS: dict[str, Any] = {
    "fs_type": "nfs4", "source": "10.0.0.250:/x", "network": True, "mount_point": "/data", "inside": "/x",
    "kind": "directory", "inode": "2", "changed": "5",
}  # fmt: skip
FUSE: dict[str, Any] = {**NFS, "fs_type": "fuse.s3fs", "source": "s3fs"}
EFS: dict[str, Any] = {**NFS, "source": "127.0.0.1:/"}


def judged(*nodes: Place, paths: tuple[str, ...] = ("/data",), **changes: Any) -> list[Finding]:
    found = {name(i): places(one) for i, one in enumerate(nodes, 1)}
    machines = hosts(len(nodes)) | changes
    return list(fs_shared(found, machines, job(len(nodes), paths=paths)))


def data(**changes: Any) -> Place:
    return place("/data", **changes)


def local(inode: int) -> Place:
    return data(inode=str(inode), kind="directory")


SILENT = [
    ([data(**NFS)] * 3, "shared by 3 nodes: nfs4 10.0.0.250:/x"),
    ([data(**{**NFS, "source": "b,a:/x"}), data(**{**NFS, "source": "a,b:/x/"})], "shared by 2 nodes"),
    ([local(1), local(2), local(3)], "each of 3 nodes has its own"),
    # The same volume through two addresses of its server.
    ([data(**NFS), data(**NFS), data(**{**NFS, "source": "10.0.0.251:/x"})], "may be shared by 3 nodes"),
    # Who serves it has it as a disk of its own.
    ([local(2), data(**{**NFS, "source": "10.0.0.1:/x"}), data(**{**NFS, "source": "10.0.0.1:/x"})], ""),
    ([local(2), data(**{**NFS, "source": "n1.example:/x"}), data(**{**NFS, "source": "n1.example:/x"})], ""),
    ([data(**FUSE), data(**{**FUSE, "inode": "9", "changed": "7"})], "may be shared by 2 nodes, fuse.s3fs"),
    ([data(**EFS), data(**EFS)], "shared by 2 nodes: nfs4 127.0.0.1:/"),
    ([data(**EFS), data(**{**EFS, "changed": "8"})], "may be shared by 2 nodes, nfs4 127.0.0.1:/"),
    ([data(**{**NFS, "fs_type": "9p", "source": "none", "changed": i}) for i in "12"], "may be shared"),
]
SPEAKING = [
    ([data(**NFS), data(**NFS), local(2)], "fs-not-mounted-data", Status.FAIL, {"n3"}),
    ([data(**NFS), local(2)], "fs-not-mounted-data", Status.WARN, {"n2"}),
    ([local(1), local(2), data(**NFS)], "fs-another-data", Status.WARN, {"n3"}),
    ([data(**NFS), data(**NFS), data(**{**NFS, "inode": "8"})], "fs-another-data", Status.WARN, {"n3"}),
    (
        [data(**NFS), data(**NFS), data(**{**NFS, "source": "10.9.9.9:/x", "changed": "6"})],
        "fs-another-data", Status.WARN, {"n3"},
    ),
]  # fmt: skip


def test_silent_where_it_is_shared_or_nowhere() -> None:
    for nodes, words in SILENT:
        findings = judged(*nodes)
        assert causes(findings) == {}, nodes
        assert words in " ".join(one.summary for one in findings), findings
        assert {one.status for one in findings} <= {Status.PASS}


def test_names_the_node_that_has_something_else() -> None:
    for nodes, key, status, odd in SPEAKING:
        findings = judged(*nodes)
        assert causes(findings) == {key: odd}, nodes
        assert {one.status for one in findings} == {status}, findings


def test_nodes_of_one_kernel_share_its_devices() -> None:
    same = hosts(1)["n1"]
    (finding,) = judged(local(1), local(1), n1=same, n2=same)
    assert "shared by 2 nodes" in finding.summary


def test_skips_what_cannot_be_compared() -> None:
    for findings in (judged(data(**NFS)), judged(data(error="hangs"), data(**NFS)), judged(paths=())):
        assert [one.status for one in findings] == [Status.SKIP]


def test_what_is_to_be_mounted() -> None:
    """A mount of the network that is not there is missed; of a local one nothing is known unless named."""

    def held(typed: str, *nodes: PlaceFacts) -> dict[str, str]:
        wish = Expectation(key="fs.mount.*", of="/data", any_of=(typed,), place="e.toml:2")
        found = {name(i): one for i, one in enumerate(nodes, 1)}
        expect = Expectations(wishes=(wish,))
        said = fs_shared(found, hosts(len(nodes)), job(len(nodes)), expect)
        return {f.target: f.status.value for f in said if f.status is not Status.SKIP}

    mount, root = place("/data", "mount", **NFS), place("/", "root", mount_point="/")
    there, bare = places(mount, root), places(root)
    many = places(*(replace(mount, path=f"/x{i}", mount_point=f"/x{i}") for i in range(8)))
    named = places(replace(mount, role="path", asked="/data", network=False, fs_type="xfs"))
    hung = places(place("/data", "mount", error="hangs", mount_point="/data"))
    assert held("nfs4 10.0.0.250:/x", there, there) == {}
    assert held("nfs4 *", there, bare) == {"n2": "fail"}
    assert held("nfs4 10.9.9.9:/x", there) == {"n1": "fail"}
    assert held("local xfs", named, there) == {"n2": "fail"}
    for unknown in (bare, hung):
        assert held("local xfs", unknown) == {"n1": "unknown"}
    assert held("nfs4 *", many) == {"n1": "unknown"}, "as many as are looked at"
    assert held("nfs4 *", hung) == {"n1": "unknown"}
