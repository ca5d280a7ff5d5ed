"""What we say of the ports that the kernel picks, against the kernel: small ranges, really used up."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys

import pytest

from netdoctor.facts.net import NetFacts
from netdoctor.rules.local_ports import pool

pytestmark = pytest.mark.process

# Below a network namespace of its own: a range, then listeners and connections, and after each how it is.
PLAY = """
import json, socket, subprocess, sys
from netdoctor.agent.facts import net as facts_net
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
stores = [socket.create_server(("127.0.0.1", 29500 + i), backlog=256) for i in (0, 1)]

def attempt(what, port=0):
    s = socket.socket()
    try:
        if what == "bind":
            s.bind(("127.0.0.1", 0))
            s.listen(1)
        else:
            s.connect(("127.0.0.1", 29500 + port))
            kept.append(stores[port].accept()[0])
    except OSError as e:
        s.close()
        return e.errno
    kept.append(s)
    return 0

for low, high, reserved, plan in json.load(sys.stdin):
    for name, value in (("ip_local_port_range", f"{low} {high}"), ("ip_local_reserved_ports", reserved)):
        with open("/proc/sys/net/ipv4/" + name, "w") as f:
            f.write(value or "\\n")
    kept = []
    done = [attempt(*one) for one in plan]
    facts = facts_net.local_ports("/")
    full = {"facts": facts, "bind": attempt("bind"), "done": done}
    if full["bind"] == 0:
        kept.pop().close()
    codes = [attempt("connect", 1) for _ in range(high - low + 2)]
    full["reached"], full["connect"] = codes.count(0), codes[-1]
    full["at the end"] = facts_net.local_ports("/")
    # Whoever closes first keeps the port in TIME_WAIT.
    for s in kept:
        s.close()
    full["waiting"] = facts_net.local_ports("/")
    print(json.dumps(full), flush=True)
"""


def test_the_kernel_runs_out_where_we_say_so() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, for a network namespace with a range of its own")
    chosen, plans = random.Random(15), []
    for i in range(24):
        # Each case has ports of its own: those of the last one are in TIME_WAIT. Of an odd number of ports
        # the kernel passes one over, now and then: it walks in steps of two.
        low = 33000 + 100 * i
        high = low + 2 * chosen.randint(1, 6) - 1
        kept = sorted(chosen.sample(range(low, high + 1), chosen.randint(0, (high - low) // 2)))
        steps = [[chosen.choice(["bind", "connect"])] for _ in range(chosen.randint(0, 14))]
        plans.append((low, high, ",".join(map(str, kept)), steps))
    played = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", PLAY],
        input=json.dumps(plans), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert played.returncode == 0, played.stderr
    answers = [json.loads(line) for line in played.stdout.splitlines()]
    assert len(answers) == len(plans)
    exhausted = waited = 0
    for plan, said in zip(plans, answers, strict=True):
        facts = NetFacts(netdevs=(), addresses=(), **said["facts"])
        has, taken = pool(facts), facts.ports_taken or 0
        assert has == plan[1] - plan[0] + 1 - len(plan[2].split(",") if plan[2] else ()), plan
        # Who binds gets a port exactly as long as one is left that nobody has.
        assert (said["bind"] == 0) == (taken < has), (plan, said)
        binds = sum(step == ["bind"] for step, code in zip(plan[3], said["done"], strict=True) if not code)
        # Who dials one address and port gets each port once that nobody listens on: no more, and no fewer.
        assert (said["reached"], said["connect"]) == (has - binds, errno.EADDRNOTAVAIL), (plan, said)
        assert said["at the end"]["ports_taken"] == has, (plan, said)
        waited += said["waiting"]["time_wait"] > 0
        exhausted += taken == has
    assert exhausted > 3, "hardly any of these ranges was full"
    assert waited > 15, "hardly any left a socket in TIME_WAIT"
