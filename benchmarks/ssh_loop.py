"""Log in everywhere, send a request, count the answers, judge nothing: netdoctor's transport, or asyncssh.

    ssh_loop.py netdoctor PORTS KNOWN_HOSTS SSH_CONFIG
    ssh_loop.py asyncssh PORTS KNOWN_HOSTS KEY USER COMMAND <REQUEST

PORTS: a file of lines ``address port``.

Both keep 64 logins going and give each 15 seconds. asyncssh is told the cheap algorithms that netdoctor asks
for first, and reads no configuration for each host.
"""

import sys
from pathlib import Path

AT_ONCE = 64
LOGIN_S = 15.0
NODE_S = 60.0


def netdoctor(ports: str, known_hosts: str, ssh_config: str) -> int:
    from netdoctor.check import Profile
    from netdoctor.engine.gathering import first_groups
    from netdoctor.facts.base import FACT_TYPES
    from netdoctor.facts.software import Job
    from netdoctor.inventory.model import Target
    from netdoctor.transport.base import Limits, Request, SessionEvent, SshOptions
    from netdoctor.transport.ssh.transport import SshTransport

    groups = first_groups({info.group for info in FACT_TYPES.values()}, [], Job(), Profile.QUICK)
    request = Request(op="facts", args={"groups": groups})
    targets = [Target(id=h, host=h, order=i) for i, h in enumerate(Path(ports).read_text().split()[::2])]
    options = SshOptions(ssh_config=Path(ssh_config), known_hosts=Path(known_hosts))
    limits = Limits(parallel=AT_ONCE, login_timeout_s=LOGIN_S, node_budget_s=NODE_S)
    transport = SshTransport(options, limits)
    try:
        events = transport.start(targets, {t.id: request for t in targets}, keep_open=False, collectors={})
        return sum(not isinstance(event, SessionEvent) and event.missing is None for event in events)
    finally:
        transport.close()


def asyncssh(ports: str, known_hosts: str, key: str, user: str, command: str) -> int:
    import asyncio

    import asyncssh as ssh

    request = sys.stdin.buffer.read()
    key_pair = ssh.load_keypairs(key)
    known = ssh.read_known_hosts(known_hosts)

    async def ask(host: str, port: int, at_once: asyncio.Semaphore) -> bool:
        async with at_once:
            connecting = ssh.connect(
                host, port, config=None, username=user, client_keys=key_pair,
                known_hosts=known, agent_path=None, login_timeout=LOGIN_S, connect_timeout=LOGIN_S,
                kex_algs=["curve25519-sha256"], encryption_algs=["aes128-gcm@openssh.com"],
            )  # fmt: skip
            async with connecting as connection:
                done = await connection.run(command, input=request.decode("latin-1"), encoding="latin-1")
                return str(done.stdout).endswith("}}\n")

    async def run() -> int:
        at_once = asyncio.Semaphore(AT_ONCE)
        lines = [line.split() for line in Path(ports).read_text().splitlines()]
        asked = (ask(host, int(port), at_once) for host, port in lines)
        return sum(answer is True for answer in await asyncio.gather(*asked, return_exceptions=True))

    return asyncio.run(run())


if __name__ == "__main__":
    which = netdoctor if sys.argv[1] == "netdoctor" else asyncssh
    print(which(*sys.argv[2:]))
