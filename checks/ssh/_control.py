"""What of the machine that netdoctor runs on keeps it from logging in, and what heals it. Blames no node."""

from netdoctor.facts.host import Trouble
from netdoctor.model import CONTROL, SUSPECTED, Cause, Fix, look, run

AS_THE_OWNER = run(
    'run netdoctor as their owner; in a container: --user "$(id -u):$(id -g)" -e USER="$USER"',
    effect="next login",
)


def _look(text: str, shell: str) -> tuple[Fix, ...]:
    return (look(text, shell, on=CONTROL),)


# What has no class of its own is only suspected.
TROUBLES: dict[Trouble | None, tuple[Cause, tuple[Fix, ...]]] = {
    None: (
        Cause("ssh-control", "netdoctor could not log in because of this machine, not the nodes", SUSPECTED),
        _look("put this machine right, then scan again", "ulimit -a; free -m"),
    ),
    Trouble.NETWORK: (
        Cause("ssh-control-network", "This machine has no network"),
        _look("give this machine a network, then scan again", "ip -brief address; ip route"),
    ),
    Trouble.NAMES: (
        Cause("ssh-control-names", "No name server answers this machine"),
        _look(
            "see which name servers it asks; names of /etc/hosts, and addresses, need none",
            "cat /etc/resolv.conf",
        ),
    ),
    Trouble.PROCESSES: (
        Cause("ssh-control-processes", "This machine starts no more processes for netdoctor"),
        _look(
            "end what is not needed, or raise the limit (ulimit -u; of a container --pids-limit)",
            "ulimit -u; ps -eLf | wc -l",
        ),
    ),
    Trouble.FILES: (
        Cause("ssh-control-files", "This machine has no file descriptors left for netdoctor"),
        _look("raise the limit, then scan again", "ulimit -Hn; cat /proc/sys/fs/file-nr"),
    ),
    Trouble.MEMORY: (
        Cause("ssh-control-memory", "This machine has no memory left for netdoctor"),
        _look("free memory or raise the limit, then scan again", "free -m; ulimit -v"),
    ),
    Trouble.SETTINGS: (
        Cause("ssh-control-settings", "netdoctor may not read your ssh settings on this machine"),
        (AS_THE_OWNER,),
    ),
    Trouble.KEYS: (
        Cause("ssh-control-keys", "There is no key on this machine that netdoctor can use"),
        (
            run(
                "unlock an encrypted key (elsewhere than ~/.ssh/id_*: its path after ssh-add)",
                # 2: no agent answers
                'ssh-add -l >/dev/null 2>&1; [ $? -lt 2 ] || eval "$(ssh-agent -s)"; ssh-add',
                on=CONTROL,
                effect="next login",
                undo="ssh-add -d",
            ),
            run(
                "make one of those seen usable, or a new one (ssh-keygen), or name another "
                "(IdentityFile in ~/.ssh/config, --ssh-key)"
            ),
            AS_THE_OWNER,
            run('an agent in a container: -v "$SSH_AUTH_SOCK":/agent -e SSH_AUTH_SOCK=/agent'),
        ),
    ),
}
