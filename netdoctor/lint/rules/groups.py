"""Several files of one job, held against each other."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from netdoctor.lint.files import Config, Shell
from netdoctor.lint.launches import TORCH, Launch
from netdoctor.lint.model import Found, Kind, Severity, rule
from netdoctor.lint.rules.env import is_loopback
from netdoctor.lint.rules.torch import nodes_of, several

RUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
EQUAL = ("nnodes", "rdzv-id", "rdzv-backend", "rdzv-endpoint", "master-addr", "master-port")


@dataclass(frozen=True, slots=True)
class Together:
    """All files that were given at once."""

    shells: tuple[Shell, ...]
    configs: tuple[Config, ...] = ()

    def jobs(self) -> list[list[tuple[Shell, Launch]]]:
        """Launches on several nodes in different files of one folder that start one program with the same
        words."""
        found: dict[tuple[str, ...], list[tuple[Shell, Launch]]] = defaultdict(list)
        for shell in self.shells:
            for launch in shell.launches_of(*TORCH, closed=True):
                words = tuple(map(str, launch.rest))
                if several(launch) and words and not launch.level:
                    job = (os.path.dirname(shell.file.path), *words)
                    found[job].append((shell, launch))
        # More scripts than nodes are those of more than one job.
        return [
            members
            for members in found.values()
            if 1 < len(members) == len({shell.file.path for shell, _ in members})
            and len(members) <= max(nodes_of(launch) or 0 for _, launch in members)
        ]


@rule(Severity.ERROR, Together, Kind.SHELL, RUN)
def env_rank_unique(together: Together) -> Iterator[Found]:
    """Each of a job's scripts has a node rank of its own.

    What happens:
        Two nodes with one rank both wait, without a message: the rank that is missing never comes.
    Write instead:
        0 to nnodes - 1, each once; or c10d, where nobody counts by hand.
    Wrong:
        torchrun --nnodes 2 --node-rank 0 --master-addr node0 train.py
        --- second file
        torchrun --nnodes 2 --node-rank 0 --master-addr node0 train.py
    Right:
        torchrun --nnodes 2 --node-rank 0 --master-addr node0 train.py
        --- second file
        torchrun --nnodes 2 --node-rank 1 --master-addr node0 train.py
    """
    for members in together.jobs():
        shell_of: dict[int, Shell] = {}
        for shell, launch in members:
            word, number = launch.get("node-rank"), launch.number("node-rank")
            if word is None or number is None:
                continue
            if number in shell_of:
                yield Found(
                    word.position,
                    f"node rank {number} is that of {shell_of[number].file.path} already: both wait for a "
                    "rank that nobody has",
                    "another number for each node",
                    shell.file.path,
                )
            shell_of.setdefault(number, shell)
    machines: dict[tuple[str | None, str | None], dict[int, Config]] = defaultdict(dict)
    for config in together.configs:
        for document in config.documents_of(Kind.ACCELERATE):
            rank = document.get("machine_rank")
            if rank is None or rank.number is None or (document.number_at("num_machines") or 1) < 2:
                continue
            job = machines[document.text_at("main_process_ip"), document.text_at("main_process_port")]
            if rank.number in job:
                yield Found(
                    rank.position,
                    f"machine_rank {rank.number} is that of {job[rank.number].file.path} already: both wait "
                    "for one that is missing",
                    "another number for each machine",
                    config.file.path,
                )
            job.setdefault(rank.number, config)


@rule(Severity.ERROR, Together, Kind.SHELL, RUN)
def env_differs(together: Together) -> Iterator[Found]:
    """The scripts of one job agree on the rendezvous.

    What happens:
        Nodes with another number of nodes, id, backend, address or port wait for different groups, and all
        give up after ten minutes.
    Write instead:
        The same options on every node, but for --node-rank.
    Wrong:
        torchrun --nnodes 2 --node-rank 0 --master-addr node0 --master-port 29500 train.py
        --- second file
        torchrun --nnodes 2 --node-rank 1 --master-addr node0 --master-port 29501 train.py
    Right:
        torchrun --nnodes 2 --node-rank 0 --master-addr node0 --master-port 29500 train.py
        --- second file
        torchrun --nnodes 2 --node-rank 1 --master-addr node0 --master-port 29500 train.py
    """
    for members in together.jobs():
        ranks = [rank for _, launch in members if (rank := launch.number("node-rank")) is not None]
        if len(set(ranks)) < len(ranks) or (ranks and len(ranks) < len(members)):
            continue  # more than one job, or env.rank-unique has spoken
        first_shell, first = members[0]
        for shell, launch in members[1:]:
            for name in EQUAL:
                one, other = first.get(name), launch.get(name)
                if one is None or other is None or None in (one.text, other.text) or one.text == other.text:
                    continue
                if not ranks and name in ("rdzv-id", "rdzv-endpoint"):
                    continue  # as likely two jobs
                if name == "master-addr" and (is_loopback(one.value) or is_loopback(other.value)):
                    continue  # the node of rank 0 may call itself so; torch.endpoint speaks of the others
                yield Found(
                    other.position,
                    f"--{name} is {other.text} here and {one.text} in {first_shell.file.path}: the nodes "
                    "wait for different groups",
                    f"--{name} {one.text}",
                    shell.file.path,
                )
