"""No secret leaves a node, in whatever shape it stands there, and what is no secret stays as it is."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent import main, runtime
from netdoctor.agent.facts import env as facts_env
from netdoctor.agent.system import private, procs
from netdoctor.options import ScanRequest
from netdoctor.scanning import jobenv
from tests.agent import trees

S = "s3cr3t"
KEY = "Ab1" * 12

# What a variable may hold, by a name that is told.
SHAPES = {
    "proxy": ("https_proxy", f"http://joe:{S}@proxy:3128/"),
    "proxy, slash in the password": ("https_proxy", f"http://joe:{S}/x@proxy:3128"),
    "proxy, at in the password": ("HTTP_PROXY", f"http://joe:x@{S}@proxy:3128"),
    "proxy, blank in the password": ("HTTP_PROXY", f"http://joe:x {S} y@proxy"),
    "proxy, slashes in the password": ("all_proxy", f"socks5h://joe://{S}://x@proxy"),
    "proxy without a scheme": ("http_proxy", f"joe:{S}/{S}@proxy:3128"),
    "proxy, token for a user": ("http_proxy", f"http://{S}@proxy:3128"),
    "proxy, longer than what is told": ("http_proxy", f"http://joe:{S * 2000}@proxy:3128"),
    "rendezvous": ("PET_RDZV_CONF", f"timeout=5,token={S},etcd_password={S}"),
    "rendezvous, comma in the password": ("PET_RDZV_CONF", f"password=a,{S}"),
    "rendezvous endpoint": ("PET_RDZV_ENDPOINT", f"etcd://root:{S}@etcd:2379"),
    "rendezvous endpoint, no scheme": ("PET_RDZV_ENDPOINT", f"root:{S}@etcd:2379"),
    "query": ("PET_RDZV_ENDPOINT", f"https://etcd:2379/x?api_key={S}&a=1"),
    "search path": ("PYTHONPATH", f"/opt/a:git+https://oauth2:{S}@git.example/x:/opt/b"),
    "search path with a provider's key": ("PYTHONPATH", f"/opt/glpat-{S}{KEY}/lib"),
    "hugging face": ("NCCL_DEBUG_FILE", f"/tmp/hf_{S}{KEY}"),
    "github": ("NCCL_DEBUG_FILE", f"/tmp/ghp_{S}{KEY}"),
    "openai": ("NCCL_DEBUG_FILE", f"sk-proj-{S}{KEY}"),
    "web token": ("NCCL_DEBUG_FILE", f"eyJ{KEY}.{S}{KEY}.{S}"),
    "slack": ("NCCL_DEBUG_FILE", f"xoxb-{S}-{KEY}"),
    "key block": ("NCCL_CONF_FILE", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}\n{S}"),
    "argument": ("LD_PRELOAD", f"x.so --hf-token={S}"),
    "argument, apart": ("LD_PRELOAD", f"x.so --hf-token {S} --db-password '{S} {S}'"),
    "header": ("UCX_X", f"Authorization: Bearer {S}"),
    "json": ("UCX_X", f'{{"token": "{S} {S}", "db_password":"{S}"}}'),
    "quote that stays open": ("UCX_X", f'token="{S}'),
    **{
        name: (name, S)
        for name in (
            *("NCCL_NET_TOKEN", "UCX_AUTH_TOKEN", "GLOO_SECRET", "FI_PASSWORD", "PET_RDZV_PASSWORD"),
            *("NCCL_API_KEY", "NCCL_ACCESSKEY", "NCCL_DB_PASS", "UCX_PSK", "NCCL_COOKIE", "HF_TOKEN"),
            *("WANDB_API_KEY", "NCCL_CREDENTIALS", "FI_SHARED_KEY"),
        )
    },
}
# No URL, so that only a proxy's variable says what it is.
BY_NAME_ALONE = {"proxy, blank in the password", "proxy without a scheme"}
PLAIN = {
    "NCCL_IB_PKEY": "1",
    "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
    "NCCL_SOCKET_IFNAME": "^docker,lo",
    "NCCL_COMM_ID": "[fd00::1%eth0]:29500",
    "PYTHONPATH": "/opt/tokenizers:/home/joe/sk-image-experiments:/opt/passwords/lib",
    "LD_LIBRARY_PATH": "/sw/gcc@12/lib:/sw/openmpi@4.1/lib",
    "http_proxy": "http://proxy:3128",
    "no_proxy": "localhost,.example,10.0.0.0/8",
    "PET_RDZV_CONF": "timeout=900,read_timeout=60",
    "PET_RDZV_ENDPOINT": "node01:29500",
    "UCX_TLS": "rc,ud,sm,self",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_secret_is_told_of_a_variable(shape: str, tmp_path: Path) -> None:
    name, value = SHAPES[shape]
    told: list[Any] = [facts_env.variables({name.encode(): value.encode()})]
    root = str(trees.make(tmp_path, {"/etc/nccl.conf": value if "\n" in value else f"{name}={value}\n"}))
    told.append(facts_env.nccl_conf(None, None, None, root))
    # What netdoctor itself is called with: the shell, and an env file.
    file = tmp_path / "train.env"
    file.write_text(f"{name}={shlex.quote(value)}\n" if "\n" not in value else "")
    told.append(jobenv.job(ScanRequest(env_file=file, environ={name: value}, master_port=1), ()))
    if value != S and shape not in BY_NAME_ALONE:
        carried = {"NCCL_X": value}
        told.append(jobenv.job(ScanRequest(environ=carried, master_port=1), ()))
        # Whatever else holds it: evidence, an error's text, a plug-in's answer.
        told.append(private.masked_in({"x": [f"failed: {value}", {value: (1, value)}]}))
    assert S not in str(told)
    assert S[:3] not in str(told)


def test_what_is_no_secret_stays() -> None:
    found = facts_env.variables({name.encode(): value.encode() for name, value in PLAIN.items()})
    assert found == dict(sorted(PLAIN.items()))
    text = "the token was refused; 10.0.0.1 node1 # joe@example.org; scp joe@node1:/x; eth0@if3: 3 tokens"
    assert private.masked(text) == text


class Sent:
    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)


def test_everything_leaves_by_one_door() -> None:
    """Facts, errors and a plug-in's words: what Agent.send hands on is masked."""
    channel = Sent()
    agent = main.Agent(channel)  # type: ignore[arg-type]  # only its send() is used
    agent.send({"id": 1, "ok": True, "result": {"torch_error": f"http://u:{S}@pypi/x: 404", "n": [1, None]}})
    agent.fail(2, "failed", f"E: /x?token={S}")
    assert S not in str(channel.messages)
    assert channel.messages[0]["result"]["n"] == [1, None]
    assert channel.messages[1] == {"id": 2, "ok": False, "why": "failed", "detail": "E: /x?token=***"}


@pytest.mark.parametrize(
    ("title", "name"),
    [
        pytest.param("python3", "python3", id="a program"),
        pytest.param("ray::IDLE", "ray::IDLE", id="ray"),
        pytest.param("tmux: server", "tmux", id="tmux"),
        pytest.param(f"python x.py {S}", "python", id="arguments"),
        pytest.param(f"--token={S}", "--token=***", id="an option"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_process_is_named_without_its_arguments(tmp_path: Path, title: str, name: str) -> None:
    root = str(trees.make(tmp_path, {"/proc/7/comm": f"{title}\n", "/proc/7/stat": ""}))
    assert procs.comm(7, root) == name
    assert procs.describe(7, root)["name"] == name


def test_psutil_does_not_complete_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a long name from the command line, where a program that sets its title puts its arguments."""
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(runtime, "library", lambda name: psutil)
    monkeypatch.setattr(psutil.Process, "name", lambda process: f"python --hf-token={S}")
    assert procs.describe(os.getpid())["name"] == procs.comm(os.getpid())


def test_masking_takes_linear_time() -> None:
    """A text of 40 kB that took quadratic time would keep this busy for minutes: no clock is asked."""
    for piece in ("token=", "token-", "://", 'token="', "--", "-token ", "@", ":", "token:'", "eyJ", "sk-"):
        private.masked(piece * (40_000 // len(piece)))
        private.masked_variable("http_proxy", piece * (40_000 // len(piece)))
