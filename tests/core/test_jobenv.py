"""What the job will use: env files as a shell reads them, secrets left where they are."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.errors import InputError
from netdoctor.facts.software import Job
from netdoctor.options import ScanRequest
from netdoctor.scanning import jobenv, packages


def job(tmp_path: Path, text: str | bytes | None = None, port: int | None = None, **environ: str) -> Job:
    path = None
    if text is not None:
        path = tmp_path / "train.env"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    request = ScanRequest(env_file=path, environ=environ, master_port=port)
    return jobenv.job(request, ["n1", "n2"], packages.read_requirements("torch"))


def test_nothing_said(tmp_path: Path) -> None:
    assert job(tmp_path) == Job(master_port=29500, master_node="n1", packages=("torch",))


def test_the_calling_environment_by_allow_list(tmp_path: Path) -> None:
    found = job(
        tmp_path, NCCL_DEBUG="INFO", GLOO_SOCKET_IFNAME="eth0", HF_TOKEN="x", PATH="/bin", MASTER_PORT="1234"
    )
    assert set(found.env) == {"NCCL_DEBUG", "GLOO_SOCKET_IFNAME", "MASTER_PORT"}
    assert found.env_from["NCCL_DEBUG"] == "calling environment"
    assert found.master_port == 1234


def test_an_image_has_a_name_that_may_stand_in_a_command() -> None:
    for name in ("nvcr.io/nvidia/pytorch:25.03", "a@sha256:0"):
        assert jobenv.job(ScanRequest(image=name), ()).image == name
    for name in ("-v", "a b", "", "a;b"):
        with pytest.raises(InputError, match="--image"):
            jobenv.job(ScanRequest(image=name), ())


def test_the_file_wins_over_the_environment_and_the_flag_over_both(tmp_path: Path) -> None:
    text = "MASTER_PORT=2000\nMASTER_ADDR=n2\n"
    assert job(tmp_path, text, MASTER_PORT="1000").master_port == 2000
    assert job(tmp_path, text, port=3000, MASTER_PORT="1000").master_port == 3000
    assert job(tmp_path, text).master_addr == "n2"
    assert job(tmp_path, text).env_from["MASTER_ADDR"] == "train.env:2"


def test_an_env_file_s_secrets_stay_in_it(tmp_path: Path) -> None:
    text = "HF_TOKEN=hf_abc\nAWS_SECRET_ACCESS_KEY=k\nNCCL_DEBUG=INFO\nDB_URL=postgres://u:p@h\nNCCL_AUTH_TOKEN=x\n"
    found = job(tmp_path, text)
    assert found.env == {"NCCL_DEBUG": "INFO"}
    assert found.env_from == {"NCCL_DEBUG": "train.env:3"}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("NCCL_X=eth0", "eth0"),
        ("export NCCL_X=eth0", "eth0"),
        ("  NCCL_X=eth0  ", "eth0"),
        ("NCCL_X=", ""),
        ("NCCL_X='a b'", "a b"),
        ('NCCL_X="a b"', "a b"),
        ("NCCL_X=a\\ b", "a b"),
        ("NCCL_X=eth0 # the fast one", "eth0"),
        ("NCCL_X=eth0 # don't", "eth0"),
        ("NCCL_X= # nothing", ""),
        ("NCCL_X=a#b", "a#b"),
        ("NCCL_X=a\\ #b", "a #b"),
        ("NCCL_X='a # b'", "a # b"),
        ('NCCL_X="a"b', "ab"),
        ("NCCL_X=a=b", "a=b"),
        ("NCCL_X=^=eth0,eth1", "^=eth0,eth1"),
        ("NCCL_X=eth0\r", "eth0"),
    ],
)
def test_lines_read_as_a_shell_reads_them(tmp_path: Path, line: str, value: str) -> None:
    assert job(tmp_path, f"# head\n\n{line}\n").env == {"NCCL_X": value}


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="ab1 '\"\\#=,/-", max_size=12))
def test_whatever_is_read_is_what_sh_reads(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("env") / "x.env"
    path.write_text(f"NCCL_X={text}\n")
    try:
        values, _ = jobenv.read_env_file(path)
    except InputError:
        return
    script = f'unset NCCL_X; . "{path}"; printf %s "$NCCL_X"'
    said = subprocess.run(
        ["/bin/sh", "-c", script], check=False, capture_output=True, text=True, env={"PATH": "/nowhere"}
    )
    assert (said.returncode, said.stdout) == (0, values.get("NCCL_X", "")), text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", ["train.env:1", "write: NAME=value"]),
        ("A=1\nNCCL_X=a b\n", ["train.env:2", "NCCL_X"]),
        ("NCCL_X='open\n", ["train.env:1", "no closing quotation"]),
        ("1A=x\n", ["train.env:1"]),
        ("NCCL_X=# the shell would run `the`\n", ["train.env:1"]),
        ("source other.env\nhf_secret_token\n", ["train.env:1", "train.env:2"]),
        ("NCCL_X=a\0b\n", ["train.env:1"]),
        (b"NCCL_X=\xff\n", ["not UTF-8"]),
        ("MASTER_PORT=http\n", ["MASTER_PORT", "train.env:1", "1 to 65535"]),
        ("MASTER_PORT=0\n", ["MASTER_PORT"]),
        ("MASTER_PORT=70000\n", ["MASTER_PORT"]),
        ("MASTER_ADDR='-oProxyCommand=x'\n", ["MASTER_ADDR"]),
        ("MASTER_ADDR='a;b'\n", ["MASTER_ADDR"]),
    ],
)
def test_bad_files_are_told_line_by_line(tmp_path: Path, text: str | bytes, words: list[str]) -> None:
    with pytest.raises(InputError) as told:
        job(tmp_path, text)
    assert all(word in str(told.value) for word in words), str(told.value)


def test_a_token_on_a_line_of_its_own_is_not_echoed(tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        job(tmp_path, "HF_TOKEN=ok\nhf_abcdefgh\n")
    assert "hf_abcdefgh" not in str(told.value)


def test_no_such_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="--env-file"):
            jobenv.read_env_file(path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        os.truncate(file.fileno(), jobenv.MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger"):
        jobenv.read_env_file(path)


def test_a_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    assert job(tmp_path, "\ufeffNCCL_A=1\r\nNCCL_B=2\r\n".encode()).env == {"NCCL_A": "1", "NCCL_B": "2"}


def test_no_file_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.env")
    with pytest.raises(InputError, match="not a regular file"):
        jobenv.read_env_file(tmp_path / "job.env")


def test_the_launcher_is_what_was_said_or_what_variables_say(tmp_path: Path) -> None:
    assert job(tmp_path, PATH="/bin").launcher is None
    assert job(tmp_path, PET_NNODES="4").launcher == "torchrun"
    assert job(tmp_path, "PET_RDZV_ENDPOINT=n1:29500\n").launcher == "torchrun"
    request = ScanRequest(environ={"PET_NNODES": "4"}, launcher="mpirun", backend="gloo")
    said = jobenv.job(request, ())
    assert (said.launcher, said.backend) == ("mpirun", "gloo")
    assert jobenv.checked(said) == said
    for odd in ({"launcher": "make"}, {"backend": "mpi"}):
        with pytest.raises(InputError, match="launcher or backend"):
            jobenv.checked(replace(said, **odd))
