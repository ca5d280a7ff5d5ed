"""Host lists people have, and everything that is wrong with some of them."""

import io
import os
import stat
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdoctor import model
from netdoctor.inventory import Inventory, InventoryError, Problem, load, restrict
from netdoctor.inventory.errors import KEPT_MAX, SHOWN_MAX
from netdoctor.inventory.names import RESERVED, is_valid_host, is_valid_user, python_fault
from netdoctor.inventory.readers import READERS
from tests.hostile import HOSTILE, HOSTILE_BYTES, each_of, steers_a_terminal


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def from_text(text: str, format: str = "auto") -> Inventory:
    """Load text as hosts.txt."""
    Path("hosts.txt").write_bytes(text.encode())
    return load(["hosts.txt"], format=format)


def faults(text: str, format: str = "auto") -> str:
    """Return the message for a hosts file that cannot be used."""
    with pytest.raises(InventoryError) as caught:
        from_text(text, format)
    message = str(caught.value)
    assert not steers_a_terminal(message)
    return message


def row(inventory: Inventory, *fields: str) -> list[tuple[object, ...]]:
    """Return the named fields of every target."""
    return [tuple(getattr(target, name) for name in fields) for target in inventory.targets]


def ids(inventory: Inventory) -> str:
    return " ".join(target.id for target in inventory.targets)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gpu1", ("gpu1", None, None)),
        ("gpu1:2222", ("gpu1", 2222, None)),
        ("gpu1:22", ("gpu1", 22, None)),
        ("root@gpu1", ("gpu1", None, "root")),
        ("root@gpu1:44222", ("gpu1", 44222, "root")),
        ("root@gpu1:443", ("gpu1", 443, "root")),
        ("gpu1:443 slots=8", ("gpu1", 443, None)),
        ("gpu1 port=443 user=ml", ("gpu1", 443, "ml")),
        ("\t gpu1   port=9001\t# inside a container", ("gpu1", 9001, None)),
        ("gpu1 # root@other:22", ("gpu1", None, None)),
        ("10.0.0.1:2222", ("10.0.0.1", 2222, None)),
        ("[::1]:2222", ("::1", 2222, None)),
        ("[2001:db8::1]", ("2001:db8::1", None, None)),
        ("root@[fe80::1%eth0]:22", ("fe80::1%eth0", 22, "root")),
        ("fe80::a:b", ("fe80::a:b", None, None)),
        ("2001:db8:0:0:0:0:0:22", ("2001:db8:0:0:0:0:0:22", None, None)),
    ],
)
def test_plain_lines(line: str, expected: tuple[object, ...]) -> None:
    assert row(from_text(line), "host", "port", "user") == [expected]


def test_plain_file_with_everything() -> None:
    inventory = from_text(
        "# cluster\n\n"
        "login user=ops python=/opt/venv/bin/python\n"
        "gpu[01-02]:2222 slots=8 gpus=8\n"
        "rack[1-2]n[1-2],spare\n"
    )
    assert ids(inventory) == "login gpu01 gpu02 rack1n1 rack1n2 rack2n1 rack2n2 spare"
    assert row(inventory, "order", "line")[:3] == [(0, 3), (1, 4), (2, 4)]
    gpu = inventory.targets[2]
    assert (gpu.port, gpu.slots, gpu.gpus, gpu.source) == (2222, 8, 8, "hosts.txt")
    assert inventory.targets[0].python == "/opt/venv/bin/python"
    assert inventory.format == "plain"
    assert inventory.fold() == "gpu[01-02],login,rack[1-2]n[1-2],spare"
    assert inventory.notes[0].startswith("hosts.txt: plain hosts file, 8 hosts, 16 slots")


def test_crlf_and_byte_order_mark() -> None:
    Path("hosts.txt").write_bytes(b"\xef\xbb\xbfgpu1\r\n# x\r\ngpu2 slots=8\r\n")
    assert ids(load(["hosts.txt"])) == "gpu1 gpu2"


@pytest.mark.parametrize(
    ("text", "format", "note"),
    [
        ("a slots=8\nb slots=8\nc slots=8\nd slots=8\n", "deepspeed", "4 hosts, 32 slots"),
        ("a slots=8 max_slots=16\nb\n", "openmpi", "2 hosts, 8 slots"),
        ("a slots = 4\n", "openmpi", "1 host, 4 slots"),
        ("a max-slots=4\n", "openmpi", "1 host"),
        ("a:8\nb:8\n", "mpich", "2 hosts, 16 slots"),
        ("a:4\nb\n", "mpich", "2 hosts, 4 slots"),
        ("node[01-16,20],b2\n", "slurm", "18 hosts"),
        ("node01,node02", "slurm", "2 hosts"),
        ("a\nb\n", "plain", "2 hosts"),
        ("a:44222\nb:22\n", "plain", "2 hosts"),
        ("ops@a slots=8\nb\n", "plain", "8 slots; 1 without slots="),
    ],
)
def test_detection_and_its_note(text: str, format: str, note: str) -> None:
    inventory = from_text(text)
    assert inventory.format == format
    assert note in inventory.notes[0]


def test_note_of_a_deepspeed_hostfile() -> None:
    inventory = from_text("a slots=8\nb slots=8\nc slots=8\nd slots=8 # spare\n")
    assert inventory.notes == ("hosts.txt: DeepSpeed hostfile, 4 hosts, 32 slots",)


def test_counts_in_a_plain_file_are_slots() -> None:
    inventory = from_text("a:8\nb gpus=8\nc:443 slots=4\n")
    assert row(inventory, "host", "port", "slots") == [
        ("a", None, 8),
        ("b", None, None),
        ("c", 443, 4),
    ]


@pytest.mark.parametrize(
    ("format", "expected"),
    [("plain", [("a", 64, None)]), ("mpich", [("a", None, 64)])],
)
def test_format_settles_an_ambiguity(format: str, expected: list[tuple[object, ...]]) -> None:
    assert row(from_text("a:64\n", format), "host", "port", "slots") == expected


def test_repeated_open_mpi_lines_add_slots() -> None:
    inventory = from_text("a slots=4 max_slots=8\nb slots=2\na slots=4\n")
    assert row(inventory, "host", "slots") == [("a", 8), ("b", 2)]
    assert "slots= on several lines, which Open MPI 4 refuses" in inventory.notes[1]
    inventory = from_text("a\na\na\nb\n", "openmpi")
    assert row(inventory, "host", "slots") == [("a", 3), ("b", None)]
    assert len(inventory.notes) == 1


def test_ranks_order_the_list() -> None:
    inventory = from_text("c rank=2\na rank=0\nb rank=1\n")
    assert row(inventory, "id", "order", "rank") == [("a", 0, 0), ("b", 1, 1), ("c", 2, 2)]


def test_leaves_are_names() -> None:
    inventory = from_text("a[1-2] leaf=sw-01:1/2\nb\n")
    assert row(inventory, "id", "leaf") == [("a1", "sw-01:1/2"), ("a2", "sw-01:1/2"), ("b", None)]


def test_same_name_on_two_ports() -> None:
    inventory = from_text("a:2222\na:2223\nb:2222\n[::1]:2222\n[::1]:2223\n")
    assert ids(inventory) == "a:2222 a:2223 b [::1]:2222 [::1]:2223"
    assert [target.host for target in inventory.targets] == ["a", "a", "b", "::1", "::1"]


def test_arguments_are_joined_in_order() -> None:
    Path("more").write_text("m1\nm2\n")
    inventory = load(["b[1-2]", "more", "-", "a1"], stdin=io.StringIO("s1\n"))
    assert ids(inventory) == "b1 b2 m1 m2 s1 a1"
    assert inventory.source == "command line, more, standard input"
    assert inventory.format == "names+plain"
    assert row(inventory, "source", "line")[2:5] == [
        ("more", 1),
        ("more", 2),
        ("standard input", 1),
    ]


def test_what_findings_say_of_something_else_is_no_id() -> None:
    """A finding at `control` is about the machine that scans."""
    assert {model.CLUSTER, model.CONTROL, model.JOB} == RESERVED
    inventory = from_text("control\ncluster:2222\njob.example.org\n")
    assert ids(inventory) == "control:22 cluster:2222 job.example.org"
    assert restrict(inventory, "control") == ("control:22",)


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        ("gpu[01-02]", [("gpu01", None, None), ("gpu02", None, None)]),
        ("root@gpu1:44222", [("gpu1", 44222, "root")]),
        ("gpu1:443", [("gpu1", 443, None)]),
        ("gpu1:8", [("gpu1", 8, None)]),
        ("gpu1,", [("gpu1", None, None)]),
        ("gpu1 port=9001", [("gpu1", 9001, None)]),
        ("gpu1 python=/usr/bin/python3", [("gpu1", None, None)]),
        ("gpu1.example.sh", [("gpu1.example.sh", None, None)]),
        ("::1", [("::1", None, None)]),
    ],
)
def test_names_on_the_command_line(arg: str, expected: list[tuple[object, ...]]) -> None:
    inventory = load([arg])
    assert row(inventory, "host", "port", "user") == expected
    assert inventory.targets[0].source == "command line"
    assert inventory.targets[0].line is None


def test_an_existing_file_wins_over_a_name() -> None:
    Path("gpu1").write_text("other\n")
    assert ids(load(["gpu1"])) == "other"
    assert ids(load(["gpu1,"])) == "gpu1"


def test_stdin_with_bytes_underneath() -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfa\r\nb\r\n"))
    assert ids(load(["-"], stdin=stream)) == "a b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # numbers
        ("worker-3 slots=", "hosts.txt:1: 'worker-3 slots=': number missing after slots=   "),
        ("worker-3 slots=", "(write: worker-3 slots=8)"),
        ("a slots=x", "slots 'x' is not a number"),
        ("a slots=-1", "slots '-1' is not a number"),
        ("a slots=8.0", "not a number"),
        ("a slots=\u0668", "not a number"),
        ("a slots=0", "slots 0 is not between 1 and 65536"),
        ("a slots=99999999999999999999", "not a number"),
        ("a port=0", "port 0 is not between 1 and 65535"),
        ("a port=65536", "port 65536 is not between"),
        ("a port=022", "leading zeros"),
        ("a:65536", "port 65536 is not between"),
        ("a:", "number missing after a:"),
        ("a:ssh", "port 'ssh' is not a number"),
        ("a gpus=9999", "gpus 9999 is not between 0 and 1024"),
        # keys
        ("a prot=22", "did you mean port=?"),
        ("a Port=22", "did you mean port=?"),
        ("a zebra=22", "known: gpus=, leaf=, port="),
        ("a port=22 port=23", "port= given twice"),
        ("a:22 port=22", "port given twice: 22 and 22"),
        ("x@a user=y", "user given twice: x@ and user=y"),
        ("a user=", "user name missing"),
        ("a user=-l", "user name '-l' is not allowed"),
        ("a python=", "interpreter missing"),
        ("a python=bin/python", "not allowed"),
        ("a python=~/bin/python", "absolute path"),
        ("a slots=4 max_slots=2", "max_slots= is less"),
        ("a 8", "write: a slots=8"),
        ("a b", "write one host per line"),
        ("a #b\nb #c\nc#d", "'#' is not allowed"),
        ("slots=8", "key=value comes after the host"),
        # ambiguity
        ("a:64", "reads two ways: 64 slots (MPICH) or port 64   (write: a slots=64, or: a port=64)"),
        ("a:23", "reads two ways"),
        ("a:1023", "reads two ways"),
        ("a:8\nb:44222", "reads as 8 slots (MPICH), but line 2 as port 44222"),
        ("a:8\nx@b:443", "but line 2 as a port"),
        ("2001:db8::1:22", "write: [2001:db8::1:22], or: [2001:db8::1]:22"),
        ("x@a,b", "user@ stands at some of several names"),
        ("a,b:2222", ":port stands at some of several names"),
        # names
        ("-oProxyCommand=x", "cannot begin with '-'"),
        ("x@-oProxyCommand=x", "cannot begin with '-'"),
        ("-l@a", "user name '-l'"),
        ("a;@c", "user name 'a;'"),
        ("ssh://a:22", "a URL is not a host"),
        ("a$(touch", "character '$'"),
        ("gpu\u202e1", "U+202E (right-to-left override)"),
        ("gpu\u00a01", "U+00A0 (no-break space)"),
        ("12345", "taken for one"),
        ("[1-3]", "taken for one"),
        ("[::1]22", "text after ']'"),
        ("[::g]:22", "not an IPv6 address"),
        ("1:2:3:4", "not an IPv6 address"),
        ("gpu\x1bc", "U+001B"),
        ("a\x0bb", "U+000B"),
        ("a\u2028b", "U+2028"),
        # as an input method writes them, and as a guide does
        ("a\u3000slots=8", "character U+3000 (ideographic space)"),
        ("a\uff1a22", "character U+FF1A (fullwidth colon)"),
        ("a\uff10", "character U+FF10 (fullwidth digit zero)"),
        ("<\u4e3b\u8282\u70b9IP>", "character '<' is not allowed in a host name"),
        ("a\rb", "carriage return"),
        ("a,,b", "name missing"),
        # ranges
        ("n[1-", "'[' without ']'"),
        ("n[01:16]", "write: [01-16]"),
        ("n[1-20001]", "20,000".replace(",", "")),
        ("n[1-15000]\nm[1-15000]", "hosts.txt:2: 'm[1-15000]': stands for 15000 names"),
        ("n[1-15000]\nm[1-15000]", "(5000 are left at this place)"),
        # repeats
        ("a\nb\na", "hosts.txt:3: 'a': same host as line 1"),
        ("a\na", "--format openmpi"),
        ("a\nA.", "same host as line 1"),
        ("::1\n0:0:0:0:0:0:0:1", "same host as line 1"),
        ("a[1-3]\na2", "same host as line 1"),
        ("x@a\ny@a", "same host as line 1"),
        ("a slots=8\nb slots=8\na slots=8", "same host as line 1 (DeepSpeed refuses duplicates)"),
        # ranks
        ("a rank=0\nb", "hosts.txt:2: 'b': no rank=, but other hosts have one"),
        ("a rank=0\nb rank=0", "rank=0 for several hosts, also line 1"),
        ("a[1-2] rank=0", "rank=0 for several hosts"),
        ("a rank=0\nb rank=2", "rank=2, but no host has rank=1"),
        ("a rank=1\nb rank=2", "no host has rank=0"),
        # leaves
        ("a leaf=", "write: leaf=rack7"),
        ("a leaf=-x", "leaf name '-x' is not allowed"),
        ("a leaf=x;y", "leaf name 'x;y' is not allowed"),
        ("a leaf=x leaf=y", "leaf= given twice"),
        (f"a leaf={'x' * 65}", "leaf name of 65 characters"),
        # nothing
        ("", "nothing selected"),
        ("# all\n\n  # commented\n", "nothing selected"),
    ],
)
def test_says_what_is_wrong(text: str, words: str) -> None:
    assert words in faults(text)


@pytest.mark.parametrize(
    ("text", "format", "words"),
    [
        ("a slots=8\nb", "deepspeed", "hosts.txt:2: 'b': no slots=, which DeepSpeed refuses"),
        ("a slots=8 port=22", "deepspeed", "no key port="),
        ("x@a slots=8", "deepspeed", "no user@"),
        ("a[1-2] slots=8", "deepspeed", "no ranges"),
        ("a:8", "openmpi", "no host:N"),
        ("a rank=1", "openmpi", "no key rank="),
        ("a slots=8 leaf=x", "deepspeed", "no key leaf="),
        ("a slots=8", "mpich", "no key slots="),
        ("a:22", "slurm", "no host:N"),
        ("a slots=8\na slots=8", "deepspeed", "DeepSpeed refuses duplicates"),
    ],
)
def test_a_named_format_is_held_to(text: str, format: str, words: str) -> None:
    assert words in faults(text, format)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": {"b": []}}', "hosts.txt:1: looks like JSON, of no kind that is known"),
        ('[\n "a"\n]', "looks like JSON"),
        ('["a", "b"]', "looks like JSON"),
        ('{"a": ', "hosts.txt:1: not JSON: "),
        ("hosts:\n  a:\n", "looks like YAML"),
        ("- a\n- b\n", "looks like YAML"),
        ("provider: local\n", "looks like YAML"),
        ("<html>\n", "looks like XML or HTML"),
        ("#!/bin/sh\necho a\n", "looks like a script"),
    ],
)
def test_other_formats_are_named_with_a_way_on(text: str, words: str) -> None:
    message = faults(text)
    assert words in message
    assert message.count("\n") == 0
    assert "   (" in message


@pytest.mark.parametrize("text", ["host slots=8", "host port=44222", "host\nmatch\n", "[::1]:22"])
def test_plain_files_that_resemble_others(text: str) -> None:
    from_text(text)


@pytest.mark.parametrize("format", ["auto", "plain"])
def test_nothing_of_a_key_file_is_shown(format: str) -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n"
    message = faults(f"Comment\n{key}", format)
    assert "c2VjcmV0" not in message
    assert "key or certificate" in message


def test_a_format_that_nobody_knows() -> None:
    assert "no such format   (one of: auto, plain, deepspeed," in faults("a", "x\x1b")


def test_all_problems_at_once_in_place() -> None:
    Path("one.txt").write_text("a slots=\nok slots=8\nb;x slots=8\n")
    with pytest.raises(InventoryError) as caught:
        load(["one.txt", "none.txt", "c$", "ok"])
    message = str(caught.value).splitlines()
    places = ["one.txt:1:", "one.txt:3:", "none.txt:", "command line:", "command line:"]
    assert [line.split(" '")[0].split(" no ")[0] for line in message] == places
    assert "same host as one.txt:2" in message[-1]
    problem = caught.value.problems[0]
    assert (problem.source, problem.line, problem.token) == ("one.txt", 1, "a slots=")


def test_many_problems_are_counted_and_cut() -> None:
    message = faults("a;b\n" * 60).splitlines()
    assert len(message) == SHOWN_MAX + 1
    assert message[-1] == "and 10 more problems"


@pytest.mark.thorough
def test_reading_stops_after_very_many_problems() -> None:
    with pytest.raises(InventoryError) as caught:
        from_text("a;b\n" * 500_000)
    assert len(caught.value.problems) == KEPT_MAX
    assert caught.value.total < KEPT_MAX + 10


def test_no_arguments_point_to_the_job() -> None:
    with pytest.raises(InventoryError, match="nothing selected") as caught:
        load([], environ={"SLURM_JOB_NODELIST": "n[1-2]"})
    assert 'netdoctor scan "$SLURM_JOB_NODELIST"' in str(caught.value)
    with pytest.raises(InventoryError, match=r"hosts\.txt"):
        load([], environ={})


@pytest.mark.parametrize(
    ("arg", "words"),
    [
        ("host.txt", "host.txt: no such file   (did you mean hosts.txt?)"),
        ("./host.txt", "did you mean ./hosts.txt?"),
        (
            "hosts.tx",
            "hosts.tx: no such file   (did you mean hosts.txt? for the host of that name write: hosts.tx,)",
        ),
        ("hsots.txt", "did you mean hosts.txt?"),
        ("custer", "did you mean cluster?"),
        ("nowhere/hosts.txt", "there is no folder nowhere"),
        ("machines", "machines: no such file   (for the host of that name write: machines,)"),
        ("zzz.yaml", "zzz.yaml: no such file"),
        ("folder", "folder: is a directory"),
        ("folder", "for the host of that name write: folder,"),
        ("pipe", "not a regular file"),
        ("/dev/null", "lists no hosts"),
        ("dangling", "symbolic link to a file that does not exist"),
        ("circle", "circle"),
        ("10.0.0.0/24", "10.0.0.[1-4]"),
        ("", "empty argument"),
        ("a\nb", "line end inside an argument"),
        ("a b", "write one host per line"),
        ("a\0b", "U+0000"),
    ],
)
def test_arguments_that_cannot_be_read(arg: str, words: str) -> None:
    Path("hosts.txt").write_text("a\n")
    Path("cluster").write_text("a\n")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("dangling").symlink_to("gone")
    Path("circle").symlink_to("circle")
    with pytest.raises(InventoryError) as caught:
        load([arg])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "name", ["gpu12", "gpu1", "gpu1.example.org", "nodes", "ab", "ml@hosts.tx", "gpu[1-2]"]
)
def test_a_host_that_is_called_nearly_like_a_file_is_a_host(name: str) -> None:
    for near in ("gpu11", "gpu", "gpu2.example.org", "nodesmap", "abc", "gpu[1-3]"):
        Path(near).write_text("x\n")
    assert load([name]).format == "names"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_no_permission() -> None:
    Path("hosts.txt").write_text("a\n")
    Path("hosts.txt").chmod(0)
    with pytest.raises(InventoryError, match="no permission"):
        load(["hosts.txt"])


def test_no_permission_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("hosts.txt").write_text("a\n")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InventoryError) as caught:
        load(["hosts.txt"])
    monkeypatch.undo()
    assert str(caught.value) == "hosts.txt: no permission to read this file"


def test_a_named_pipe_is_not_waited_for() -> None:
    os.mkfifo("hosts.txt")
    assert stat.S_ISFIFO(os.stat("hosts.txt").st_mode)
    with pytest.raises(InventoryError, match="not a regular file"):
        load(["hosts.txt"])


def many_hosts(count: int) -> bytes:
    return b"# all\n\n" + b"".join(b"n%d\n" % number for number in range(count))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\nb\n\xff\n", "hosts.txt:3: byte 0xff is not UTF-8"),
        ("a\n# 主节点\n".encode("gbk"), "iconv -f LATIN1 -t UTF-8, or from SHIFT_JIS, GBK or EUC-KR"),
        (b"a\nb\0\n", "hosts.txt:2: NUL byte"),
        ("a\n".encode("utf-16"), "UTF-16"),
        (b"a" * 70_000, "line of 70000 characters"),
        (b"#" * (4 * 1024 * 1024 + 1), "larger than 4 MiB"),
        pytest.param(
            many_hosts(600_000),
            ":20003: 'n20000': more than 20000 hosts in all, reading stopped here",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_content_that_is_no_text(content: bytes, words: str) -> None:
    Path("hosts.txt").write_bytes(content)
    for args, stdin in ((["hosts.txt"], None), (["-"], io.TextIOWrapper(io.BytesIO(content)))):
        with pytest.raises(InventoryError) as caught:
            load(args, stdin=stdin)
        assert words.removeprefix("hosts.txt") in str(caught.value)


def test_stdin_twice_closed_or_broken() -> None:
    with pytest.raises(InventoryError, match="given twice"):
        load(["-", "-"], stdin=io.StringIO("a\n"))
    closed = io.StringIO("a\n")
    closed.close()
    with pytest.raises(InventoryError, match="standard input: cannot be read"):
        load(["-"], stdin=closed)


def test_problem_escapes_what_it_is_given() -> None:
    problem = Problem("::x\x1b", 1, "\u202e", "\n", "\x9b")
    assert str(problem) == "./::x\\x1b:1: '\\u202e': \\n   (\\x9b)"


@pytest.mark.parametrize(
    "line",
    [
        "u:SECRET@h", "ssh://u:SECRET@h:22", "https://u:SECRET@h/", "u:SECRET@h slots=8", "u:x@SECRET@h",
        "u:SECRET@h 22", "n1:22,u:SECRET@h",
        "h user=u:SECRET", "h user=u:x@SECRET", "u:SECRET@h what", "u:SECRET@[fe80::1]:22", "n1,u:SECRET@h",
        "u:SECRET@h[1-3", f"u:{'SECRET' * 30}@h x", "h password=SECRET", "h ansible_ssh_pass=SECRET",
        "h api_token=SECRET", f"u:SECRET{'x' * 5000}@h",
    ],
)  # fmt: skip
def test_a_password_is_told_to_nobody(line: str) -> None:
    Path("hosts.txt").write_text(f"{line}\n")
    for format, arg in product(["auto", *READERS], ["hosts.txt", line]):
        try:
            told = " ".join(load([arg], format=format).notes)
        except InventoryError as error:
            told = str(error)
        assert told, format
        assert "SECRET" not in told, format


def check_targets(inventory: Inventory) -> None:
    """Assert what every target promises, whatever the text was."""
    seen = set()
    for order, target in enumerate(inventory.targets):
        assert is_valid_host(target.host)
        assert target.user is None or is_valid_user(target.user)
        assert target.python is None or not python_fault(target.python)
        assert target.port is None or 1 <= target.port <= 65535
        assert target.order == order
        assert target.id not in seen
        assert not steers_a_terminal(target.id + target.source)
        seen.add(target.id)
    assert seen
    assert not any(steers_a_terminal(note) for note in inventory.notes)


def check(args: list[str], stdin: TextIO | None = None, format: str = "auto") -> None:
    """Assert that arguments give sound targets, or the one error with safe text."""
    message = None
    try:
        inventory = load(args, stdin=stdin, format=format)
    except InventoryError as error:
        message = str(error)
    if message is None:
        check_targets(inventory)
        return
    assert message
    assert not steers_a_terminal(message)
    message.encode()


@pytest.mark.parametrize("form", ["{}", "{} slots=8", "gpu1 user={}", "gpu1 python={}", "{}@gpu1"])
@each_of(HOSTILE)
def test_hostile_text_in_a_file(attack: str, form: str) -> None:
    line = form.replace("{}", HOSTILE[attack])
    check(["-"], stdin=io.StringIO(f"gpu0\n{line}\n"))
    assert not Path("x").exists()


@each_of(HOSTILE.keys() - {"json-nan", "option-dash", "group"})
def test_hostile_text_as_an_argument(attack: str) -> None:
    with pytest.raises(InventoryError) as caught:
        load([HOSTILE[attack]])
    assert not steers_a_terminal(str(caught.value))
    assert not str(caught.value).startswith(("::", "##"))
    assert len(str(caught.value)) < 20_000
    assert not Path("x").exists()


@pytest.mark.parametrize("content", HOSTILE_BYTES.values(), ids=HOSTILE_BYTES)
def test_hostile_files(content: bytes) -> None:
    Path("hosts.txt").write_bytes(content)
    with pytest.raises(InventoryError) as caught:
        load(["hosts.txt"])
    assert not steers_a_terminal(str(caught.value))


def test_hostile_file_names() -> None:
    name = "::error::\x1b[31m\udcff.txt"
    Path(name).write_text("a\nb;c\n")
    with pytest.raises(InventoryError) as caught:
        load([name])
    assert str(caught.value).startswith("./::error::\\x1b[31m\\udcff.txt:2:")


LINES = st.text(alphabet="ab12[]-,:@=/ \t#%.\\\x1b\u202e'slotpr")
GARBAGE = st.lists(LINES | st.text() | st.sampled_from([*HOSTILE.values()]), max_size=6)


@pytest.mark.thorough
@given(GARBAGE, st.sampled_from(["auto", *READERS]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_garbage_gives_targets_or_the_one_error(lines: list[str], format: str) -> None:
    check(["-"], stdin=io.StringIO("\n".join(lines)), format=format)


@given(st.lists(LINES | st.text(), max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_garbage_arguments(args: list[str]) -> None:
    check([arg for arg in args if arg != "-"])


@given(st.binary())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_garbage_bytes(content: bytes) -> None:
    check(["-"], stdin=io.TextIOWrapper(io.BytesIO(content)))


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, netdoctor.inventory; "
        "print([m for m in ('ClusterShell', 'fabric', 'paramiko', 'textual', 'rich', 'asyncio', "
        "'socket', 'subprocess', 'msgspec', 'json', 'difflib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("words", [["h,h"], ["h,", "h,"], ["h[1-2],h2"]])
def test_a_host_that_is_typed_twice_is_told_as_that(words: list[str]) -> None:
    with pytest.raises(InventoryError, match="the same host is named twice"):
        load(words)
