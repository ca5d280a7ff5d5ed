from netdoctor.checks.gpu.idle import gpu_idle
from netdoctor.model import Status

from ..build import GIB, causes, said
from ..build_hw import gpu, gpus, no_gpus, process


def test_silent_when_idle() -> None:
    assert not list(gpu_idle(gpus()))


def test_skips_without_gpus() -> None:
    (finding,) = gpu_idle(no_gpus())
    assert (finding.status, finding.gap) == (Status.SKIP, None)


def test_names_pid_and_user() -> None:
    busy = gpus(devices=(gpu(0, processes=(process(4711),)), gpu(1)))
    (finding,) = said(gpu_idle(busy))
    assert finding.status is Status.WARN
    assert finding.summary == "GPU 0 is in use by python (pid 4711, alice)"
    assert causes([finding]) == {"gpu-busy": {"n1"}}


def test_only_what_still_has_its_name_is_ended() -> None:
    late = process(4711, age_s=3 * 86400.0, left_over=True, memory_bytes=GIB)
    others = (process(12, name=None), process(13, name="$(reboot)"))
    (finding,) = said(gpu_idle(gpus(devices=(gpu(0, processes=(late, *others)),))))
    assert "python (pid 4711, alice, 1024 MiB, running for 3 days, left over by a session)" in finding.summary
    assert finding.cause
    _, end = finding.cause.fixes
    assert [one.shell for one in end.commands] == ['[ "$(ps -o comm= -p 4711)" = python ] && kill 4711']


def test_the_server_of_mps_is_harmless_and_its_clients_are_not() -> None:
    """As NVML lists them (580.159 on an H100): the server, and each client by itself."""
    server, client = process(759, name="nvidia-cuda-mps", memory_bytes=66 << 20), process(3029)
    assert not list(gpu_idle(gpus(devices=(gpu(0, processes=(server,)),))))
    (finding,) = said(gpu_idle(gpus(devices=(gpu(0, processes=(server, client)),))))
    assert "pid 3029" in finding.summary
    assert "759" not in finding.summary


def test_display_servers_are_harmless() -> None:
    busy = gpus(devices=(gpu(0, processes=(process(1, name="/usr/lib/xorg/Xorg"),)),))
    assert not list(gpu_idle(busy))


def test_a_display_server_hides_nobody() -> None:
    server = process(1, name="/usr/lib/xorg/Xorg", memory_bytes=GIB)
    quiet = gpus(devices=(gpu(0, processes=(server,), memory_used_bytes=2 * GIB),))
    assert not list(gpu_idle(quiet))
    busy = gpus(devices=(gpu(0, processes=(server,), memory_used_bytes=41 * GIB),))
    (finding,) = gpu_idle(busy)
    assert finding.summary == "40960 MiB of GPU 0 are in use by processes that cannot be seen"


def test_a_gpu_whose_processes_nvml_does_not_tell_is_not_green() -> None:
    (finding,) = gpu_idle(gpus(devices=(gpu(0), gpu(1, processes=None))))
    assert finding.status is Status.SKIP
    assert finding.summary == "NVML does not report which processes use GPU 1"
    assert finding.gap == "who uses the GPUs"


def test_a_gpu_whose_memory_nvml_does_not_tell_is_not_green() -> None:
    (finding,) = gpu_idle(gpus(devices=(gpu(0), gpu(1, memory_used_bytes=None))))
    assert finding.status is Status.SKIP
    assert finding.summary == "NVML does not report how much memory of GPU 1 is in use"


def test_memory_without_a_process_is_named() -> None:
    busy = gpus(devices=(gpu(0, memory_used_bytes=40 * GIB),))
    assert causes(said(gpu_idle(busy))) == {"gpu-busy": {"n1"}}
    unknown_process = gpus(devices=(gpu(0, processes=(process(9, name=None, user=None),)),))
    (finding,) = gpu_idle(unknown_process)
    assert "user unknown" in finding.summary
