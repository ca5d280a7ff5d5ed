"""Every kind of host list: what is taken from it, and the trap that it has for its reader."""

import json
import os
import random
import shutil
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netdoctor.inventory import Inventory, InventoryError, load, restrict
from netdoctor.inventory.names import is_valid_host, is_valid_user
from netdoctor.inventory.readers import READERS
from netdoctor.inventory.readers.sets import evaluate
from netdoctor.inventory.readers.sshconfig import aliases
from netdoctor.inventory.surroundings import words
from netdoctor.inventory.writers import in_order
from tests.hostile import steers_a_terminal


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def read(
    text: str, format: str = "auto", name: str = "list", environ: Mapping[str, str] | None = None
) -> Inventory:
    Path(name).write_text(textwrap.dedent(text))
    return load([name], format=format, environ=environ or {})


def refused(text: str, format: str = "auto") -> str:
    with pytest.raises(InventoryError) as caught:
        read(text, format)
    return str(caught.value)


def told(inventory: Inventory) -> list[str]:
    """Each host as ``user@id=host:port*slots/gpus%group``, what is not said left out."""
    said = []
    for t in inventory.targets:
        text = f"{t.user}@{t.id}" if t.user else t.id
        text += f"={t.host}" if t.host != t.id else ""
        numbers = ((":", t.port), ("*", t.slots), ("/", t.gpus))
        text += "".join(f"{sign}{number}" for sign, number in numbers if number is not None)
        said.append(text + "".join(f"%{group}" for group in t.groups))
    return said


INI = """\
    ; comment
    login ansible_connection=local
    [gpu]
    gpu[01:03] ansible_user=ml     # not ours: x=1
    gpu04 ansible_host=10.0.0.4 ansible_ssh_port=2222
    "gpu05"  ansible_user='CORP\\jane' note="a # b"
    [gpu:vars]
    ansible_user=root
    ansible_ssh_private_key_file=~/.ssh/key
    [all:vars]
    ansible_port = 0x16
    [rack1:children]
    gpu
    [rack1:vars]
    ansible_user=nobody
    """
YAML = """\
    all:
      vars: {ansible_port: 22}
      children:
        gpu:
          vars: &login
            ansible_user: ml
          hosts:
            g[a:b]:
            n1: {ansible_host: "fe80::1%eth0", <<: *login, ansible_port: 2222}
        empty:
    """
LISTING = {
    "_meta": {"hostvars": {"n1": {"ansible_host": "10.0.0.1", "ansible_port": 2222}, "n2": {"x": [1]}}},
    "all": {"children": ["ungrouped", "gpu"]},
    "gpu": {"hosts": ["n1", "n2"]},
}
RAY = """\
    cluster_name: x
    provider:
      type: local
      head_ip: 10.0.0.9
      worker_ips: [10.0.0.1, "10.0.0.2"]
    auth: {ssh_user: ubuntu, ssh_private_key: ~/.ssh/key}
    """
SSH = """\
    Host *
      User ml
    Host gpu-1 gpu-2   # two
      HostName 10.0.0.1
    Host "gpu-3" !gpu-4 login?
    Host=gpu-1
    Match host gpu-9
    """
HOSTS = """\
    127.0.0.1 localhost
    127.0.1.1 me
    ::1 ip6-localhost
    ff02::1 ip6-allnodes
    10.0.0.1\tgpu1 gpu1.lan
    fd00::1 gpu1
    fd00::2 gpu2
    """


def pod(name: str, index: int, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"batch.kubernetes.io/job-completion-index": str(index)}},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}, {}]},
        "status": {"phase": "Running", "podIP": f"10.1.0.{index + 1}", **status},
    }


PODS = {"kind": "List", "items": [pod("w-0", 0), pod("w-10", 10), pod("w-2", 2)]}
NODES = {
    "kind": "List",
    "items": [
        {
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"unschedulable": True} if name == "n2" else {},
            "status": {
                "addresses": [{"type": "Hostname"}, {"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"nvidia.com/gpu": "4"},
            },
        }
        for name, address in (("n1", "10.0.0.1"), ("n2", "10.0.0.2"))
    ],
}
OURS = {
    "schema": "netdoctor.hosts/1",
    "hosts": [
        {"id": "a", "host": "10.0.0.1", "port": 22, "user": "u", "slots": 8, "groups": ["g"], "python": "/x"},
        {"id": "b:23", "host": "b", "port": 23},
        {"id": "b:24", "host": "b", "port": 24},
    ],
}
REPORT = {
    "schema": "netdoctor.report/1",
    "run": {"replay": {}},
    "targets": [{"id": "n1", "address": "10.0.0.1", "port": 22, "user": "root"}],
}

# text, format that it is found to be, hosts, part of what is told
LISTS = [
    (INI, "ansible",
     ["ml@gpu01:22%gpu%rack1", "ml@gpu02:22%gpu%rack1", "ml@gpu03:22%gpu%rack1",
      "root@gpu04=10.0.0.4:2222%gpu%rack1", "CORP\\jane@gpu05:22%gpu%rack1"],
     "not taken: ansible_ssh_private_key_file"),
    ("n[1:3:2] ansible_user=u\n", "ansible", ["u@n1", "u@n3"], "2 hosts"),
    ("[g]\nn1:2222\n[::1]:23\nn[08:09].x\n", "ansible", ["n1:2222%g", "::1:23%g", "n08.x%g", "n09.x%g"], ""),
    (YAML, "ansible", ["ml@ga:22%gpu", "ml@gb:22%gpu", "ml@n1=fe80::1%eth0:2222%gpu"], "3 hosts"),
    (json.dumps(LISTING), "ansible", ["n1=10.0.0.1:2222%gpu", "n2%gpu"], "Ansible inventory"),
    (RAY, "ray", ["ubuntu@10.0.0.9", "ubuntu@10.0.0.1", "ubuntu@10.0.0.2"], "not taken: ssh_private_key"),
    (SSH, "ssh", ["gpu-1", "gpu-2", "gpu-3"], "scan with --ssh-config list"),
    (HOSTS, "hosts", ["gpu1=10.0.0.1", "gpu2=fd00::2"], "passed over: gpu1 at fd00::1"),
    (json.dumps(PODS), "kubernetes", ["w-0=10.1.0.1/8", "w-2=10.1.0.3/8", "w-10=10.1.0.11/8"], "SSH may"),
    (json.dumps(NODES), "kubernetes", ["n1=10.0.0.1/4", "n2=10.0.0.2/4"], "not ready, or cordoned: n2"),
    (json.dumps(OURS), "json", ["u@a=10.0.0.1:22*8%g", "b:23=b:23", "b:24=b:24"], "not taken: python="),
    (json.dumps(REPORT, indent=1), "json", ["root@n1=10.0.0.1:22"], "netdoctor's JSON"),
    ("ServerAliveInterval 9\nUser ml\nHost a b\n", "ssh", ["a", "b"], "ssh config"),
    ("n1 8 n2 4\n", "lsf", ["n1*8", "n2*4"], "12 slots"),
    ("n1 8 all.q@n1 UNDEFINED\nn2 4 all.q@n2 0,0\n", "sge", ["n1*8", "n2*4"], "12 slots"),
    ("n[1-4],-n[2-3],ml@m1\n", "pdsh", ["n1", "n4", "ml@m1"], "3 hosts"),
    ("n[1-12],/n.$/,-/[35]$/\n", "pdsh", ["n1", "n2", "n4", "n6", "n7", "n8", "n9"], "7 hosts"),
    ("\ufeffa slots=8 max_slots=9\r\nb\r\n", "openmpi", ["a*8", "b"], "takes the number of cores (line 2)"),
]  # fmt: skip


def test_every_kind_is_found_and_read() -> None:
    for text, format, hosts, note in LISTS:
        inventory = read(text)
        assert (inventory.format, told(inventory)) == (format, hosts)
        assert note in "\n".join(inventory.notes), note
        assert told(read(text, format)) == hosts, format


def test_kinds_that_have_to_be_named() -> None:
    assert told(read("n1\nn1\nn2\n", "pbs")) == ["n1*2", "n2*1"]
    assert told(read("n1\nn2\nn1\n", "lsf")) == ["n1*2", "n2*1"]
    assert told(read("a:64\nb\n", "intelmpi")) == ["a*64", "b"]
    genders = "n[1-2] gpu,rack=1\nn2 login\nn3\n"
    assert told(read(genders, "genders")) == ["n1%gpu%rack=1", "n2%gpu%rack=1%login", "n3"]
    assert read(genders, name="genders").format == "genders"
    assert told(read("n[1-4]!n3\nm1\n", "clustershell")) == ["n1", "n2", "n4", "m1"]


def test_the_file_that_the_batch_system_names_is_its() -> None:
    for variable, format in (("PBS_NODEFILE", "pbs"), ("LSB_DJOB_HOSTFILE", "lsf")):
        assert told(read("n1\nn1\n", environ={variable: "list"})) == ["n1*2"]
        assert read("n1\nn1\n", environ={variable: "./list"}).format == format
    assert "same host as line 1" in refused("n1\nn1\n")
    assert "--format pbs" in refused("n1\nn1\n")


def test_the_job_around_names_its_nodes() -> None:
    cases = [
        ({"SLURM_JOB_NODELIST": "n[1-2]", "PBS_NODEFILE": "x"}, ["n[1-2],"]),
        ({"PE_HOSTFILE": "/x"}, ["/x"]),
        ({"LSB_MCPU_HOSTS": "a 8 b 4"}, ["a slots=8", "b slots=4"]),
        ({"LSB_HOSTS": "a a b"}, ["a slots=2", "b slots=1"]),
        (
            {
                "SLURM_JOB_NODELIST": "n[1-2]",
                "SLURM_JOB_NODELIST_HET_GROUP_10": "x",
                "SLURM_JOB_NODELIST_HET_GROUP_0": "n[1-2]",
                "SLURM_JOB_NODELIST_HET_GROUP_1": "g[1-4],h",
            },
            ["n[1-2],g[1-4],h,x,"],
        ),
    ]
    for environ, said in cases:
        assert words(environ) == said
    assert told(load(words({"LSB_MCPU_HOSTS": "a 8 b 4"}))) == ["a*8", "b*4"]
    with pytest.raises(InventoryError, match="none of SLURM_JOB_NODELIST"):
        words({})
    for environ, said in (
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "16"}, "task 3 of 16 of mpirun of Open MPI"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "task 0 of 2 of mpiexec, which leaves no list"),
    ):
        with pytest.raises(InventoryError, match=said):
            words(environ)


# what is wrong, format that is named ('auto' finds it), part of the message
FAULTS = [
    # Ansible
    ("[g]\nn1 ansible_host='{{ ip }}'\n", "auto", "list:2: 'n1': ansible_host is a template"),
    ("[g]\nn1 port\n", "auto", "list:2: 'n1 port': 'port' is not key=value"),
    ("[g]\nn[1-3]\n", "auto", "is not Ansible's range"),
    ("[g]\nn[3:1]\n", "auto", "runs backwards"),
    ("[g]\nn[01:100]\n", "auto", "not equally long"),
    ("[g]\nn[1:999999999]\n", "auto", "a range of 999999999 names"),
    ("[g]\nn[1:9999]m[1:9999]\n", "auto", "more than 20000 hosts"),
    ("[g]\nn1 x='\n", "auto", "cannot be taken apart: No closing quotation"),
    ("[g:children]\nh\n", "auto", "list:2: 'h': no section [h]"),
    ("[g:hostz]\n", "auto", "a section is of hosts, children or vars"),
    ("[g:vars]\nx\n[g]\n", "auto", "no key=value"),
    ("[g]\nn1 ansible_port=ssh\n", "auto", "port 'ssh' is not a number"),
    ("[g]\nn1 ansible_user=-l\n", "auto", "user name '-l' is not allowed"),
    ("[g]\nn1 ansible_host=10.0.0.1\nn2 ansible_host=10.0.0.1\n", "auto", "list:3: 'n2': same host as"),
    ("[a:children]\nb\n[b:children]\na\n", "auto", "in a circle"),
    ("plugin: aws_ec2\nregions: [x]\n", "auto", "a plugin's settings and no list"),
    # YAML
    ("all:\n  hosts:\n    a:\n    a:\n", "auto", "list:4: 'a': given twice, also line 3"),
    ("all:\n  hosts:\n    1e3.5:\n    1.5e+3:\n", "auto", "'1.5e+3' is not text to YAML but a float"),
    ("all:\n  hosts:\n    yes:\n", "auto", "is not text to YAML but a bool"),
    ("all: &a\n  hosts: *a\n", "auto", "an alias to what encloses it"),
    ("all:\n  hosts: {a: {ansible_host: !vault x}}\n", "auto", "is not text to YAML but a vault"),
    ("---\nall: {hosts: [}\n", "auto", "not YAML: "),
    ("---\na: 1\n---\nb: 1\n", "auto", "more than one YAML document"),
    ("---\n" + "[" * 100 + "]" * 100, "auto", "nested more than 40 deep"),
    ("---\na: &a [x,x,x,x,x,x,x,x]\n" + "".join(f"{c}: &{c} [{','.join('*' + p for _ in range(9))}]\n"
     .replace("**", "*") for p, c in zip(["*a", "*b", "*c", "*d", "*e"], "bcdef", strict=True)), "auto",
     "more than 200000 values"),
    # documents
    ("{" * 30 + "[" * 100_000, "auto", "not JSON"),
    ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "auto", "nested too deep"),
    (json.dumps({"kind": "List", "items": [{"kind": "Service"}]}), "auto", "kind Service"),
    (json.dumps({**PODS, "items": [pod("w", 0, podIP=None, phase="Pending")]}), "auto", "lists no hosts"),
    (json.dumps({**PODS, "items": [pod("w;x", 0)]}), "auto", "';' is not allowed in a host name"),
    (json.dumps({"schema": "netdoctor.report/1", "run": {"redacted": True}}), "auto", "a redacted report"),
    (json.dumps({"schema": "netdoctor.other/1"}), "auto", "the schema 'netdoctor.other/1'"),
    ("provider:\n  type: aws\nauth: {}\n", "auto", "list:1: provider aws: its addresses are not in the file"),
    # lines
    ("Host *\n  User x\n", "auto", "patterns only"),
    ("127.0.0.1 localhost\n", "auto", "lists no hosts"),
    ("10.0.0.1\n", "hosts", "an address without a name"),
    ("n1 10.0.0.1\n", "hosts", "list:1: 'n1': not an address"),
    ("n1 x y z\n", "sge", "not: host slots queue"),
    ("n1 n2\n", "pbs", "a node file has one name a line"),
    ("n1 8 n2\n", "lsf", "a name without its number of slots"),
    ("n1 a b\n", "genders", "not: nodes attribute"),
    ("n1,/(a+)+$/\n", "auto", "a pattern beyond letters"),
    ("n1,^file\n", "auto", "a file is not named in a file"),
    ("rsh:n1\n", "pdsh", "reached by rsh"),
    ("n1!,n2\n", "clustershell", "name missing beside an operator"),
    # the two readings of a number
    ("a:64\n", "auto", "reads two ways: 64 slots (MPICH) or port 64"),
]  # fmt: skip


def test_what_is_wrong_is_said() -> None:
    for text, format, part in FAULTS:
        assert part in refused(text, format)


def test_groups_of_the_list_select() -> None:
    inventory = read("[a]\nn[1:3]\n[b]\nn3\nm1\n")
    assert restrict(inventory, "@b") == ("n3", "m1")
    assert restrict(inventory, "@a!@b,m1") == ("n1", "n2", "m1")
    with pytest.raises(InventoryError, match=r"no such group   .it has: a, b"):
        restrict(inventory, "@c")


def test_variables_beside_an_inventory_are_not_lost_in_silence() -> None:
    Path("group_vars").mkdir()
    assert "group_vars beside it are not read" in read("[a]\nn1\n").notes[1]


def test_operators_and_pdsh_on_the_command_line() -> None:
    Path("more").write_text("f1\nf[2-3] # x\n")
    cases = {
        "n[1-4]!n[2-3]": ["n1", "n4"],
        "n[1-4]&n[2-8]": ["n2", "n3", "n4"],
        "n[1-3]^n[2-4]": ["n1", "n4"],
        "n9,n[1-3],-n2": ["n9", "n1", "n3"],
        "^more,-f3": ["f1", "f2"],
        "n1,-^more": ["n1"],
        "n[08-10],/[89]$/": ["n08", "n09"],
        "ml@n1": ["ml@n1"],
    }
    for word, hosts in cases.items():
        assert told(load([word])) == hosts, word
    assert told(load(["ssh:ml@n1"], format="pdsh")) == ["ml@n1"]
    assert told(load(["^more"], format="pdsh")) == ["f1", "f2", "f3"]
    with pytest.raises(InventoryError, match="gone: no such file"):
        load(["^gone"])


@pytest.mark.parametrize(
    ("text", "format", "words"),
    [
        ("a&b\nc\n", "auto", "'a&b': character '&' is not allowed in a host name   (operators"),
        ("c\nn[1-3]!n2\n", "auto", "hosts.txt:2: "),
        ("a^a\nc\n", "auto", "hosts.txt:1: "),
        ("a&b\nc\n", "clustershell", "hosts.txt:1: 'a&b': gives no host"),
        ("c\nn[1-2]!n[1-3]\n", "clustershell", "hosts.txt:2: 'n[1-2]!n[1-3]': gives no host"),
        ("c\na!a # x\n", "clustershell", "hosts.txt:2: 'a!a': gives no host"),
    ],
)
def test_no_line_is_dropped_without_a_word(text: str, format: str, words: str) -> None:
    Path("hosts.txt").write_text(text)
    with pytest.raises(InventoryError) as error:
        load(["hosts.txt"], format=format)
    assert words in str(error.value)


def test_an_empty_set_beside_others_on_the_command_line_is_told() -> None:
    with pytest.raises(InventoryError, match="'a&b': gives no host"):
        load(["a&b", "c,"])
    Path("hosts.txt").write_text("n[1-3]!n2\nx&x\n")
    assert told(load(["hosts.txt"], format="clustershell")) == ["n1", "n3", "x"]


def test_operators_mean_what_they_mean_to_clustershell() -> None:
    nodesets = pytest.importorskip("ClusterShell.NodeSet")
    dice = random.Random(3)
    pieces = ["n[1-9]", "n[2-4,7]", "n3", "n[01-05]", "m[1-3]n[1-2]", "n[2-8/2]", "x"]
    for _ in range(300):
        text = dice.choice(pieces)
        for _ in range(dice.randint(0, 4)):
            text += dice.choice(",!&^") + dice.choice(pieces)
        found = evaluate(text)
        assert sorted(found) == sorted(nodesets.NodeSet(text)), text
        assert len(found) == len({*found})


@pytest.mark.skipif(shutil.which("pdsh") is None, reason="no pdsh here")
@pytest.mark.process
def test_pdsh_itself_targets_the_same() -> None:
    Path("more").write_text("n2 # c\nn[3-4]\n# x\n  m9\n")
    pieces = ["n[1-9]", "n[01-03]", "m1", "n[8-10]x", "a[1-2]b[1-2]", "u@n[1-2]", "ssh:u@m[1-2]", "^more"]
    minus = {"-n2": {"n2"}, "-n[3-4]": {"n3", "n4"}, "-^more": {"n2", "n3", "n4", "m9"}}
    others = [*minus, "/n/", "/[24]$/", "-/4/", "-/^m/", "/n.*[1-3]/"]
    dice = random.Random(7)
    same = 0
    for _ in range(40):
        words = [dice.choice(pieces) for _ in range(dice.randint(1, 3))]
        words = [*words, *(dice.choice(others) for _ in range(dice.randint(0, 3)))]
        text = ",".join(words)
        done = subprocess.run(
            ["pdsh", "-R", "ssh", "-Q", "-w", text], check=False, capture_output=True, text=True, timeout=20
        )
        found = done.stdout.rpartition("-- Target nodes --")[2].strip().split(",")
        # of a host that is listed twice pdsh takes out one, which nobody means who writes a minus
        without = {name for word in words for name in minus.get(word, ())}
        theirs = [name for name in dict.fromkeys(found) if name and name not in without]
        try:
            ours = [target.host for target in load([text], format="pdsh").targets]
        except InventoryError as error:
            message = str(error)
        else:
            assert ours == theirs, text
            same += 1
            continue
        # a host with and without a user is one to us, and two to pdsh
        assert not theirs or "same host" in message, text
    assert same > 15


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="no Slurm here")
@pytest.mark.process
def test_slurm_itself_reads_the_same() -> None:
    Path("slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost\n")
    dice = random.Random(2)
    texts = ["n[1-3,05-07],x[1-2]y[08-10]"]
    for _ in range(20):
        names = [
            f"n{dice.randint(1, 12):0{dice.choice([1, 2, 3])}}{dice.choice(['', 'x'])}" for _ in range(8)
        ]
        texts.append(in_order(list(dict.fromkeys(names))))
    for text in texts:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", text],
            check=True,
            capture_output=True,
            text=True,
            timeout=20,
            env={**os.environ, "SLURM_CONF": os.path.abspath("slurm.conf")},
        )
        assert done.stdout.split() == [target.host for target in read(f"{text}\n", "slurm").targets], text


def test_groups_are_looked_up_by_clustershell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodesets = pytest.importorskip("ClusterShell.NodeSet")
    utils = pytest.importorskip("ClusterShell.NodeUtils")
    (tmp_path / "groups.d").mkdir()
    (tmp_path / "groups.d" / "c.yaml").write_text(
        "c:\n  gpu: 'n[1-4],@more'\n  more: 'm[1-2]'\n  loop: '@loop'\n  all: '@gpu,x1'\n"
        "  huge: 'n[1-999999999]'\n"
    )
    (tmp_path / "groups.conf").write_text(
        f"[Main]\ndefault: c\nautodir: {tmp_path}/groups.d\n"
        f"[site]\nmap: touch {tmp_path}/ran; echo n7\nall: echo n7\n"
    )
    nodesets.set_std_group_resolver(utils.GroupResolverConfig([str(tmp_path / "groups.conf")]))
    try:
        cases = {
            "@gpu": ["n1", "n2", "n3", "n4", "m1", "m2"],
            "@gpu!@more": ["n1", "n2", "n3", "n4"],
            "z1,@c:more": ["z1", "m1", "m2"],
            "@*!@gpu": ["x1"],
        }
        for word, hosts in cases.items():
            assert told(load([word])) == hosts, word
            assert sorted(hosts) == sorted(nodesets.NodeSet(word)), word
            assert told(read(f"{word}\n")) == hosts, word
        for word, part in {
            "@gone": "no such group",
            "@x:gone": "no such group",
            "@loop": "in a circle",
            "@huge": "stands for 999999999 names",
            "@gpu;x": "not a group",
        }.items():
            with pytest.raises(InventoryError, match=part):
                load([word])
        # a command of the site: for whoever types the group, and never because a file says so
        assert "come from a command, which no file makes us run" in refused("@site:any\n")
        assert not (tmp_path / "ran").exists()
        assert told(load(["@site:any"])) == ["n7"]
    finally:
        nodesets.set_std_group_resolver(None)


def test_aliases_of_an_ssh_config_and_its_includes(tmp_path: Path) -> None:
    folder = tmp_path / ".ssh"
    (folder / "d").mkdir(parents=True)
    (folder / "config").write_text("Include d/*\nHost login *.x\nInclude config\nhost=gpu-9 gpu-1\n")
    (folder / "d" / "one").write_text("Host gpu-1 gpu-2 !gpu-3\nHost gpu-*\n")
    with pytest.raises(InventoryError, match="too many files, or too deep"):
        aliases("gpu-*")
    (folder / "config").write_text("Include d/*\nHost login *.x\nhost=gpu-9 gpu-1\n")
    assert aliases("gpu-*") == ["gpu-1", "gpu-2", "gpu-9"]
    with pytest.raises(InventoryError, match=r"matches no alias   .there are: gpu-1, gpu-2, login"):
        aliases("node-*")


ODD: tuple[Any, ...] = (
    *(None, 0, -1, 1.5, True, 10**30, "", "x", "a b", "n[1-3]", "\x1b[31m", "::1"),
    *([], {}, [[]], {"a": {}}),
)


def broken(value: Any, dice: random.Random) -> Any:
    """A document with something odd somewhere in it."""
    if dice.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return dice.choice(ODD)
    if isinstance(value, list):
        return [broken(v, dice) if dice.random() < 0.5 else v for v in value]
    odd = dice.choice([*value])
    kept = {k: v for k, v in value.items() if k == odd or dice.random() < 0.9}
    return {k: broken(v, dice) if k == odd else v for k, v in kept.items()}


def mangled(text: str, dice: random.Random) -> str:
    """A text with a few of its pieces cut out, doubled or put elsewhere."""
    for _ in range(dice.randint(1, 4)):
        at, size = dice.randrange(len(text) + 1), dice.randint(1, 12)
        signs = [*"[]{}:,=@!&^#%'\"\\\n\t -", "\n  ", "*a", "&a ", "ansible_host="]
        piece = dice.choice([text[at : at + size], "", *signs])
        text = text[:at] + piece * dice.choice([1, 1, 2, 50]) + text[at + size * dice.randint(0, 1) :]
    return text


@pytest.mark.thorough
def test_whatever_is_in_a_list_is_hosts_or_the_one_error() -> None:
    dice = random.Random(13)
    documents = [LISTING, PODS, NODES, OURS, REPORT]
    read_well, told = 0, list[str]()
    for number in range(500):
        odd = json.dumps(broken(dice.choice(documents), dice))
        Path("list").write_text(odd if number % 3 == 0 else mangled(dice.choice(LISTS)[0], dice))
        try:
            found = load(["list"], format=dice.choice([*READERS, *["auto"] * len(READERS)]), environ={})
        except InventoryError as error:
            told.append(str(error))
            continue
        read_well += 1
        assert len({t.id for t in found.targets}) == len(found.targets) > 0
        assert all(is_valid_host(t.host) and (t.user is None or is_valid_user(t.user)) for t in found.targets)
        assert not any(steers_a_terminal(note) for note in found.notes)
    assert read_well > 15
    assert not any(map(steers_a_terminal, told))


@pytest.mark.thorough
def test_large_lists_are_read_or_refused_in_time() -> None:
    """Not a clock: what is quadratic in any of these does not end."""
    many = range(4000)
    assert len(read("[g]\n" + "".join(f"n{i} ansible_port=22\n" for i in many)).targets) == 4000
    nested = "".join(f"[g{i}:children]\ng{i + 1}\n" for i in range(90)) + "[g90]\nn[1:4000]\n"
    assert len(read(nested).targets[0].groups) == 91
    assert "more than 5000 groups" in refused("".join(f"[g{i}]\nn{i}\n" for i in range(6000)))
    deep = "".join(f"[g{i}:children]\ng{i + 1}\n" for i in range(200)) + "[g200]\na\n"
    assert "in a circle or too deep" in refused(deep)
    pods = [pod(f"w-{i}", i, podIP=f"10.{i >> 8}.{i & 255}.1") for i in range(1000)]
    assert len(read(json.dumps({"kind": "List", "items": pods}, indent=4)).targets) == 1000
    assert "YAML of more than 1024 KiB" in refused("---\nall:\n" + "n: \n" * 300_000)
    assert len(read("---\nall:\n  hosts:\n" + "".join(f"    n{i}:\n" for i in many)).targets) == 4000


def test_every_kind_has_a_list_here() -> None:
    shown = {format for _, format, _, _ in LISTS}
    named = {"pbs", "genders", "intelmpi", "clustershell"}
    older = {"plain", "deepspeed", "mpich", "slurm"}  # tests/inventory/test_load.py
    assert set(READERS) == shown | named | older
