"""What torch was built with, and what it finds."""

from dataclasses import replace
from typing import Any

from netdoctor.checks.sw.libraries import sw_libraries
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.software import Shadow, SoftwareFacts, Unmet
from netdoctor.model import Finding, Status

from ..build import host
from ..build_hw import gpus, nccl, software, torch

LINUX = '; platform_system == "Linux" and platform_machine == "x86_64"'


def judged(facts: SoftwareFacts, gpu: GpuFacts | None = None) -> dict[str, Finding]:
    found = list(sw_libraries(facts, host(), gpu or gpus()))
    return {f.cause.key if f.cause else f.status.value: f for f in found}


def unmet(requires: str, installed: str | None = None, of: str = "torch", version: str = "2.6.0") -> Unmet:
    return Unmet(of=of, version=version, requires=requires, installed=installed)


FAIL, WARN = Status.FAIL, Status.WARN
OLDER = "torch-requires-older-"
# What is required, what is installed, and what is said of it.
CASES: list[tuple[str, str | None, dict[str, Status]]] = [
    ("nvidia-nccl-cu12==2.21.5" + LINUX, "2.19.3", {OLDER + "nvidia-nccl-cu": WARN}),
    ("nvidia-nccl-cu12==2.21.5" + LINUX, "2.26.2", {}),
    ("nvidia-nccl-cu12==2.21.5" + LINUX, "2.21.5.post1", {}),
    ("nvidia-nccl-cu12==2.21.5" + LINUX, "garbage", {}),
    ("nvidia-cudnn-cu12==9.1.0.70", "8.9.2.26", {OLDER + "nvidia-cudnn-cu": FAIL}),
    ("nvidia-cudnn-cu12==9.1.0.70", "9.5.1.17", {}),
    ("nvidia-cublas-cu12==12.4.5.8", "12.1.3.1", {OLDER + "nvidia": WARN}),
    ("triton==3.2.0", "3.1.0", {OLDER + "triton": WARN}),
    ("triton==3.2.0", "3.3.0", {OLDER + "triton": WARN}),
    ("sympy==1.13.1", "1.13.3", {}),
    ("sympy==1.13.1", "1.12", {}),
    ("typing-extensions>=4.10.0", None, {"torch-requires-missing": WARN}),
    ("nvidia-nccl-cu12==2.21.5; platform_machine == 'aarch64'", None, {}),
    ("setuptools; python_version >= '3.12'", None, {}),
    ("not a requirement at all $", None, {}),
]


def test_what_torch_requires() -> None:
    for requires, installed, expected in CASES:
        found = judged(software(unmet=(unmet(requires, installed),)))
        assert {key: f.status for key, f in found.items()} == expected, (requires, installed)


def test_it_says_what_pip_would_and_how_to_put_it_right() -> None:
    found = judged(software(unmet=(unmet("nvidia-nccl-cu12==2.21.5" + LINUX, "2.19.3"),)))
    (finding,) = found.values()
    assert finding.summary.startswith(
        "torch 2.6.0 requires nvidia-nccl-cu12==2.21.5; 2.19.3 is installed: it may"
    )
    assert finding.cause
    (fix,) = finding.cause.fixes
    assert fix.commands[0].shell == "/opt/v/bin/python -m pip install 'nvidia-nccl-cu12==2.21.5'"


def test_packages_that_were_asked_for() -> None:
    rows = (unmet("torch==2.6.0", "2.5.1+cu124", "vllm", "0.8.4"), unmet("xgrammar<1", None, "vllm", "0.8.4"))
    found = judged(software(unmet=rows))
    assert {key: f.status for key, f in found.items()} == {"package-vllm-requires": WARN}
    assert "here is torch 2.5.1+cu124" in found["package-vllm-requires"].summary
    assert judged(software(unmet=(unmet("torch>=2.5", "2.5.1+cu124", "vllm"),))) == {}
    # Of the extras that were asked for, and of no others.
    ray = unmet('ray>=2.48; extra == "ray" and python_version > "3"', None, "vllm")
    assert judged(software(unmet=(ray,))) == {}
    (asked,) = judged(software(unmet=(replace(ray, extras=("audio", "ray")),))).items()
    assert (asked[0], asked[1].status) == ("package-vllm-audio-ray-requires", WARN)
    assert set(judged(software(torch=None, unmet=rows))) == {"package-vllm-requires"}


def test_an_extension_for_another_python() -> None:
    found = judged(software(torch=torch(built_for=("cpython-310",))))
    assert {key: f.status for key, f in found.items()} == {"torch-other-python": FAIL}


def test_nccl_for_a_newer_cuda_than_the_driver_offers() -> None:
    def said(cuda: str | None, offered: str | None) -> set[str]:
        return set(judged(software(nccl=(nccl(cuda=cuda),)), gpus(cuda_driver=offered)))

    assert said("13", "12.8") == {"nccl-cuda"}
    assert said("12", "12.8") == said("12.9", "12.4") == said("11", "12.8") == said(None, "12") == set()
    assert said("13", None) == set()
    assert said("12", "11.7") == set()  # torch is built for 12, too
    assert not list(sw_libraries(software(nccl=(nccl(cuda="13"),)), host(), None))


def shadow(name: str, version: str | None, origin: str = "LD_LIBRARY_PATH") -> Shadow:
    return Shadow(name=name, path=f"/usr/local/x/{name}", origin=origin, version=version)


def test_libraries_that_the_environment_puts_in_front() -> None:
    def said(*shadows: Shadow, **more: Any) -> dict[str, Status]:
        facts = software(shadows=shadows, cuda_packages={"nvidia-cudnn-cu12": "9.8.0.87"}, **more)
        return {key: f.status for key, f in judged(facts).items()}

    assert said(shadow("libcudnn.so.9", "9.5.1")) == {"cudnn-overridden": FAIL}
    assert said(shadow("libcudnn.so.9", "9.10.2"), shadow("libcudnn.so.9", None)) == {}
    assert said(shadow("libcuda.so.1", "535.104.05")) == {"libcuda-overridden": WARN}
    for version in ("570.86.15", "575.57.08", None):  # the driver's own, cuda-compat's, a stub
        assert said(shadow("libcuda.so.1", version)) == {}


def test_nothing_to_look_at_is_skipped() -> None:
    assert set(judged(software(torch=None))) == {"skip"}
    assert judged(software()) == {}
