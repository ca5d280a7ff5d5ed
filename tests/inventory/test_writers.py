"""Host lists for other programs: what is read back is what was meant, or it was refused or told."""

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from netdoctor.inventory import InventoryError, Target, load
from netdoctor.inventory.names import is_valid_host, is_valid_user
from netdoctor.inventory.readers import READERS
from netdoctor.inventory.writers import WRITERS, in_order, write
from tests.launch import theirs
from tests.launch.test_parsers import DeepSpeed

RAY = os.environ.get("NETDOCTOR_TEST_RAY_PYTHON")
ANSIBLE = os.environ.get("NETDOCTOR_TEST_ANSIBLE_PYTHON")
# Names and users that are allowed, and mean something to one program or another.
NAMES = (
    *("gpu1", "gpu-a01", "GPU2", "n01.example.com", "n1.", "_jump", "a_", "0x1f.x", "1e3", "yes", "null"),
    *("slots", "max_slots", "count", "all", "localhost", "host", "match", "include", "rank", "2026-01-01"),
    *("10.0.0.1", "10.0.0.20", "fe80::1%eth0", "2001:db8::1", "::ffff:10.0.0.9", "ip-10-0-0-1", "None"),
    *("n08", "n09", "n10"),
)
USERS = (
    "root",
    "CORP\\jane",
    "jane@x.example",
    "1_000",
    "0x1f",
    "None",
    "True",
    "1e5",
    "12",
    "a$",
    "x.y",
    "a+b",
)
KINDS = {"ansible-yaml": "ansible"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def some(seed: int, plain: bool = False) -> list[Target]:
    """A list of hosts, plain: without what some program cannot read."""
    dice = random.Random(seed)
    names = [f"n{i:02}" for i in range(1, 30)] if plain else list(NAMES)
    dice.shuffle(names)
    addresses = [f"10.9.{seed % 250}.{i}" for i in range(1, 40)]
    targets = []
    for order, name in enumerate(names[: dice.randint(1, 12)]):
        aliased = ":" not in name and not re.match(r"[0-9.]+$", name) and dice.random() < 0.3
        targets.append(
            Target(
                id=name,
                host=addresses[order] if aliased else name,
                port=dice.choice([None, None, 22, 44222]),
                user=None if plain else dice.choice([None, None, *USERS]),
                slots=dice.choice([None, 1, 8, 64]),
                gpus=dice.choice([None, None, 0, 8]),
                leaf=dice.choice([None, None, "sw1"]),
                groups=tuple(dice.sample(["gpu", "rack_1"], dice.randint(0, 2))),
                order=order,
            )
        )
    return targets


def back(text: str, name: str) -> tuple[Target, ...]:
    Path("list").write_text(text)
    return load(["list"], format=KINDS.get(name, name), environ={}).targets


def held(targets: Sequence[Target], name: str) -> list[dict[str, Any]]:
    """What a format can hold of targets."""
    writer = WRITERS[name]
    said = []
    for t in targets:
        fields: dict[str, Any] = {f: getattr(t, f) for f in writer.holds - {"name", "python"}}
        if "slots" in writer.holds:
            fields["slots"] = t.slots or t.gpus or (int(writer.slots) if writer.slots == "1" else None)
        if name in ("slurm", "clustershell"):
            fields["host"] = t.id
        elif name == "ssh":  # aliases are what is taken of an ssh config
            fields = {"id": re.sub("[^A-Za-z0-9._-]+", "-", t.id).strip("-")}
        else:
            fields["host"] = t.host
        said.append(fields)
    return said


def test_every_format_is_read_and_written() -> None:
    assert {KINDS.get(name, name) for name in WRITERS} | {"genders", "kubernetes"} == set(READERS)


@pytest.mark.thorough
def test_what_is_written_is_read_back() -> None:
    refusals = dict.fromkeys(WRITERS, 0)
    for seed in range(36):
        for name in WRITERS:
            targets = some(seed, plain=seed % 2 == 0)
            if name == "hosts":
                targets = [replace(t, host=f"10.8.0.{t.order + 1}") for t in targets]
            try:
                text, lost = write(targets, name, slots=4 if seed % 3 else None)
            except InventoryError:
                refusals[name] += 1
                assert seed % 2 or name == "deepspeed", name
                continue
            if seed % 3:
                targets = [replace(t, slots=t.slots or t.gpus or 4) for t in targets]
            found = back(text, name)
            fields = held(found, name) if name != "ssh" else [{"id": t.id} for t in found]
            assert fields == held(targets, name), (name, text)
            for field in ("port", "user", "leaf"):
                had = any(getattr(t, field) is not None for t in targets)
                assert (field in WRITERS[name].holds) or had == any(f": {field} of" in line for line in lost)
            assert text.isascii()
            assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)
    assert refusals["json"] == refusals["plain"] == 0
    with pytest.raises(InventoryError, match="more than 4 MiB"):
        write([Target(id=f"n{i}", host=f"n{i}", slots=65_536) for i in range(100)], "pbs")


@pytest.mark.thorough
def test_a_list_of_one_kind_becomes_one_of_any_other() -> None:
    targets = [Target(id=f"n{i:02}", host=f"n{i:02}", slots=8, order=i) for i in (3, 1, 2)]
    for first in WRITERS.keys() - {"hosts"}:
        there = back(write(targets, first)[0], first)
        for second in WRITERS.keys() - {"hosts"}:
            found = back(write(there, second, slots=8)[0], second)
            assert [t.host for t in found] == ["n03", "n01", "n02"], (first, second)


REFUSED = [
    (
        Target(id="a", host="a"),
        "deepspeed",
        "no slots, which a DeepSpeed hostfile needs   (say",
    ),
    (Target(id="a", host="::1", slots=8), "deepspeed", "no IPv6 addresses in a DeepSpeed hostfile"),
    (Target(id="a", host="::1", slots=8), "mpich", "no IPv6"),
    (Target(id="slots", host="slots", slots=8), "openmpi", "would not read this name as a host"),
    (Target(id="_x", host="_x", slots=8), "openmpi", "would not read this name as a host"),
    (Target(id="a", host="fe80::1%e0"), "openmpi", "would not read this name as a host"),
    (Target(id="a", host="a", user="x.y"), "openmpi", "would not read this user"),
    (Target(id="a", host="a"), "hosts", "no address is known"),
    (Target(id="a", host="fe80::1%e0"), "hosts", "an address with a zone"),
    (Target(id="all", host="all"), "ansible", "Ansible keeps this name for a group"),
    (Target(id="10.0.0.1", host="10.0.0.1"), "hosts", "no name is known of this address"),
]


def test_what_another_program_would_misread_is_refused() -> None:
    for target, name, part in REFUSED:
        with pytest.raises(InventoryError) as caught:
            write([target], name)
        assert part in str(caught.value)
    twice = [Target(id=f"a:{port}", host="a", port=port, slots=8) for port in (22, 23)]
    for name in ("deepspeed", "openmpi", "mpich", "slurm", "pdsh", "pbs", "lsf", "sge", "ray"):
        with pytest.raises(InventoryError, match="the same host as a:22 without their ports"):
            write(twice, name)
    assert "a-23 ansible_host=a ansible_port=23" in write(twice, "ansible")[0]
    users = [Target(id=n, host=n, user=u) for n, u in (("a", "x"), ("b", "y"))]
    with pytest.raises(InventoryError, match="Ray has one for all"):
        write(users, "ray")


def test_what_is_lost_is_told() -> None:
    targets = [Target(id=f"n{i}", host=f"10.0.0.{i}", port=2222, slots=8) for i in range(1, 6)]
    assert write(targets, "deepspeed")[1] == (
        "lost in a DeepSpeed hostfile: name of n1, n2, n3 and 2 more; the address is written",
        "lost in a DeepSpeed hostfile: port of n1, n2, n3 and 2 more; say Port in ssh config",
    )
    assert write([Target(id="a", host="a")], "openmpi")[1] == (
        "an Open MPI hostfile: 1 without slots, for which it takes the cores",
    )
    assert write(targets, "json")[1] == ()


def test_folding_in_order_keeps_the_order() -> None:
    cases = {
        ("n1", "n2", "n3"): "n[1-3]",
        ("n3", "n2", "n1"): "n3,n2,n1",
        ("n08", "n09", "n10", "n1"): "n[08-10],n1",
        ("n9", "n10", "n011"): "n[9-10],n011",
        ("a1b", "a2b", "x"): "a[1-2]b,x",
        ("n99", "n100"): "n[99-100]",
    }
    for names, text in cases.items():
        assert in_order(names) == text
    nodesets = pytest.importorskip("ClusterShell.NodeSet")
    for seed in range(40):
        dice = random.Random(seed)
        names = dice.sample([f"n{i:0{w}}" for i in range(12) for w in (1, 2, 3)], 12)
        names = list(dict.fromkeys(names))
        assert [t.id for t in load([f"{in_order(names)},"]).targets] == names
        assert sorted(nodesets.NodeSet(in_order(names))) == sorted(nodesets.NodeSet(",".join(names)))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client here")
@pytest.mark.process
def test_ssh_itself_reads_the_config_as_it_was_meant() -> None:
    targets = [t for seed in (1, 3) for t in some(seed)]
    targets = list({t.id: t for t in targets if t.id not in ("localhost",)}.values())
    Path("config").write_text(write(targets, "ssh")[0])
    for target in targets[:12]:
        alias = re.sub("[^A-Za-z0-9._-]+", "-", target.id).strip("-")
        done = subprocess.run(
            ["ssh", "-F", "config", "-G", alias], check=True, capture_output=True, text=True, timeout=20
        )
        said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
        assert said["hostname"] == (target.host if target.host != alias else said["hostname"])
        assert said["hostname"].lower() == target.host.lower()
        assert said["port"] == str(target.port or 22)
        assert target.user is None or said["user"] == target.user


ASK = """
import json, sys
from ansible.parsing.dataloader import DataLoader
from ansible.inventory.manager import InventoryManager
from ansible.vars.manager import VariableManager
said = {}
for path in sys.argv[1:]:
    try:
        loader = DataLoader()
        found = InventoryManager(loader=loader, sources=[path])
        known = VariableManager(loader=loader, inventory=found)
        said[path] = {
            h.name: {k: v for k, v in known.get_vars(host=h).items()
                     if k in ("ansible_host", "ansible_port", "ansible_user", "group_names")}
            for h in found.get_hosts("all")
        }
    except Exception as error:
        said[path] = str(error)
print(json.dumps(said, default=str))
"""


def random_inventory(dice: random.Random) -> str:
    """INI that a person might write: ranges, groups of groups, variables in three places, quotes."""
    groups = [f"g{i}" for i in range(dice.randint(1, 4))]
    lines = []
    used = 0
    for group in ["", *groups]:
        if group:
            lines.append(f"[{group}]")
        for _ in range(dice.randint(0, 2)):
            used += 1
            form = dice.choice(
                ["h{}", "h{}x[1:3]", "h{}y[01:09:4]", "h{}[a:c]", "h{}.x:2222", "h{}-[0:1]-[08:09]"]
            )
            said = [
                f"{key}={dice.choice(values)}"
                for key, values in (
                    (
                        "ansible_user",
                        ["ml", "'a b'", '"x"', "0x10", "1_0", "CORP\\\\\\\\j", "None", "'\"q\"'"],
                    ),
                    ("ansible_port", ["22", "0x16", "'2222'"]),
                    ("other", ["'x y'", "#no", "[1,2]"]),
                )
                if dice.random() < 0.3
            ]
            lines.append(" ".join([form.format(used), *said, dice.choice(["", " # c", ""])]))
    for group in groups:
        if dice.random() < 0.6:
            lines += [
                f"[{group}:vars]",
                f"ansible_user = v{group}",
                dice.choice(["", f"ansible_port=2{used}"]),
            ]
        if dice.random() < 0.3:
            lines += [f"[{group}:vars]", f"ansible_group_priority={dice.randint(1, 3)}"]
    for parent, child in pairwise(groups):
        if dice.random() < 0.6:
            lines += [f"[{parent}:children]", child]
    return "\n".join([*lines, "[all:vars]", dice.choice(["", "ansible_user=anybody"]), ""])


@pytest.mark.skipif(ANSIBLE is None, reason="NETDOCTOR_TEST_ANSIBLE_PYTHON names no Python with ansible-core")
@pytest.mark.process
def test_ansible_itself_reads_the_same() -> None:
    texts: dict[str, str] = {}
    for seed in range(60):
        texts[f"read{seed}.ini"] = random_inventory(random.Random(seed))
        ours = [target for target in some(seed) if target.id != "all"] or some(0, plain=True)
        texts[f"own{seed}.ini"] = write(ours, "ansible")[0]
        texts[f"own{seed}.yml"] = write(ours, "ansible-yaml")[0]
    for name, text in texts.items():
        Path(name).write_text(text)
    done = subprocess.run(
        [str(ANSIBLE), "-c", ASK, *texts], check=False, capture_output=True, text=True, timeout=100,
        env={**os.environ, "ANSIBLE_LOCALHOST_WARNING": "0", "HOME": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    read = 0
    for name, said in json.loads(done.stdout).items():
        theirs = (
            {host: said_of(host, known) for host, known in said.items()} if isinstance(said, dict) else {}
        )
        try:
            found = load([name], environ={}, format="ansible").targets
        except InventoryError as error:
            problem = str(error)
        else:
            ours = {t.id: (t.host, t.port or 22, t.user, {*t.groups}) for t in found}
            assert ours == theirs, f"{name}\n{texts[name]}"
            read += 1
            continue
        # what we refuse they refuse, too, or it is nothing to log in to
        assert name.startswith("read"), problem
        sound = [
            is_valid_host(host) and (user is None or is_valid_user(user))
            for host, _, user, _ in theirs.values()
        ]
        assert not all(sound) or not sound, f"{name}: {problem}\n{texts[name]}"
    assert read > 100


def said_of(host: str, known: dict[str, Any]) -> tuple[str, int, str | None, set[str]]:
    """Address, port, user and groups as Ansible has them."""
    user = known.get("ansible_user")
    groups = {group for group in known["group_names"] if group != "ungrouped"}
    return (
        str(known.get("ansible_host", host)),
        int(known.get("ansible_port", 22)),
        None if user is None else str(user),
        groups,
    )


HOSTFILE_LINES = (
    *("{} slots=8", "{} slots=16", "{}  slots=4", "\t{} slots=2", "{} slots=8 # c", "{} slots=8\r"),
    *(
        "# {} slots=8",
        "",
        "{}",
        "{} slots=",
        "{} slots=x",
        "{} slots=0",
        "{} slots=8 max_slots=9",
        "{} slots = 8",
        "{}:8",
    ),
)


def test_deepspeed_itself_reads_the_same() -> None:
    deepspeed = DeepSpeed(theirs.package("NETDOCTOR_TEST_DEEPSPEED", "deepspeed"))
    dice = random.Random(5)
    both = 0
    for _ in range(400):
        names = [f"n{dice.randint(1, 40)}" for _ in range(dice.randint(1, 4))]
        text = "".join(
            f"{dice.choice(HOSTFILE_LINES[: dice.choice([6, 15])]).format(name)}\n" for name in names
        )
        Path("list").write_text(text)
        try:
            ours = [(t.host, t.slots) for t in load(["list"], format="deepspeed").targets]
        except InventoryError:
            continue
        assert deepspeed.hosts(text) == ours, text
        both += 1
    assert both > 100
    for seed in range(40):
        targets = [t for t in some(seed) if ":" not in t.host]
        text, _ = write(targets, "deepspeed", slots=3)
        assert deepspeed.hosts(text) == [(t.host, t.slots or t.gpus or 3) for t in targets]


VALIDATE = """
import sys, yaml
from ray.autoscaler._private.util import prepare_config, validate_config
for path in sys.argv[1:]:
    with open(path) as file:
        config = prepare_config(yaml.safe_load(file))
    validate_config(config)
    provider = config["provider"]
    print(config["auth"].get("ssh_user", "-"), provider["head_ip"], *provider["worker_ips"])
"""


@pytest.mark.skipif(not RAY, reason="NETDOCTOR_TEST_RAY_PYTHON names no interpreter with Ray")
@pytest.mark.process
def test_ray_itself_reads_the_same() -> None:
    wanted = []
    for seed in range(30):
        targets = [
            replace(target, user=USERS[seed % len(USERS)] if seed % 4 else None) for target in some(seed)
        ]
        try:
            Path(f"{seed:02}.yaml").write_text(write(targets, "ray")[0])
        except InventoryError:
            continue
        wanted.append(" ".join([targets[0].user or "-", *(target.host for target in targets)]))
    files = sorted(str(path) for path in Path().glob("*.yaml"))
    done = subprocess.run(
        [str(RAY), "-c", VALIDATE, *files], check=False, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == wanted
    assert len(wanted) > 20


@pytest.mark.parametrize(("slots", "lost"), [(None, False), (8, False), (2, True)])
def test_gpus_that_are_written_as_slots_are_not_lost(slots: int | None, lost: bool) -> None:
    text, remarks = write([Target(id="h1", host="h1", gpus=8, slots=slots)], "deepspeed")
    assert text == f"h1 slots={slots or 8}\n"
    assert any("gpus of h1" in one for one in remarks) == lost
