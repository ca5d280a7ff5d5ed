from dataclasses import replace

from netdoctor.checks.gpu.count import gpu_count
from netdoctor.model import Status

from ..build import cause, causes, found, node, nodes
from ..build_hw import all_gpus, gpu, gpus, no_gpus


def test_says_the_number_when_equal() -> None:
    findings = list(gpu_count(all_gpus(2), nodes(2)))
    assert {f.observed for f in findings} == {"8 x NVIDIA H100 80GB HBM3"}
    assert {f.status for f in findings} == {Status.PASS}


def test_skips_without_gpus() -> None:
    (finding,) = gpu_count({"n1": no_gpus()}, {"n1": node(slots=4)})
    assert finding.status is Status.SKIP


def test_fewer_than_most_nodes_is_a_warning_with_the_numbers_that_fit() -> None:
    findings = list(gpu_count(all_gpus(3, n2=gpus(7)), nodes(3)))
    assert set(found(findings, Status.WARN)) == {"n2"}
    assert causes(findings) == {"gpu-count-fewer": {"n2"}}
    (finding,) = found(findings, Status.WARN).values()
    assert "--nproc-per-node 7 here" in finding.summary
    fix, search = cause(findings, "gpu-count-fewer").fixes
    assert "23 ranks in all (8 on n1 and n3; 7 on n2)" in fix.text
    assert fix.commands[0].shell == "torchrun --nproc-per-node gpu ..."
    assert "nvidia-smi -L" in search.commands[0].shell


def test_none_where_others_have_some_fails() -> None:
    findings = list(gpu_count(all_gpus(3, n2=no_gpus()), nodes(3)))
    assert set(found(findings, Status.FAIL)) == {"n2"}


def test_where_nvml_did_not_tell_nothing_is_counted() -> None:
    """Silence is no lack of GPUs, also where the hosts file lists some, and no silence of the others."""
    mute = replace(no_gpus(), nvml="error", nvml_message="Unknown Error")
    findings = list(gpu_count(all_gpus(3, n2=mute), {**nodes(3), "n2": node(2, gpus=8)}))
    assert set(found(findings, Status.UNKNOWN)) == {"n2"}
    assert set(found(findings, Status.PASS)) == {"n1", "n3"}
    assert not found(findings, Status.FAIL)
    assert [f.status for f in gpu_count({"n1": mute}, nodes(1))] == [Status.UNKNOWN]


def test_fewer_than_listed_fails_and_other_numbers_that_are_listed_are_silent() -> None:
    listed = {"n1": node(1, gpus=8), "n2": node(2, gpus=8)}
    assert set(found(gpu_count(all_gpus(2, n2=gpus(7)), listed), Status.FAIL)) == {"n2"}
    listed["n2"] = node(2, gpus=7)
    assert causes(gpu_count(all_gpus(2, n2=gpus(7)), listed)) == {}


def test_fewer_than_listed_fails_even_on_one_node() -> None:
    assert causes(gpu_count({"n1": gpus(7)}, {"n1": node(gpus=8)})) == {"gpu-count-fewer": {"n1"}}


def test_slots_stand_for_gpus_where_they_fit_some_node() -> None:
    listed = {"n1": node(1, slots=8), "n2": node(2, slots=8)}
    assert causes(gpu_count(all_gpus(2, n2=gpus(7)), listed)) == {"gpu-count-fewer": {"n2"}}
    cores = {"n1": node(1, slots=64), "n2": node(2, slots=64)}
    assert not causes(gpu_count(all_gpus(2), cores))


def test_a_tie_suspects_the_smaller() -> None:
    findings = list(gpu_count(all_gpus(2, n1=gpus(4)), nodes(2)))
    assert causes(findings) == {"gpu-count-fewer": {"n1"}}


def test_more_than_most_is_a_warning() -> None:
    findings = gpu_count(all_gpus(3, n1=gpus(10)), nodes(3))
    assert {t: f.status for t, f in found(findings).items()} == {"n1": Status.WARN}


def test_other_models_are_a_warning() -> None:
    a100 = gpus(devices=tuple(gpu(i, name="NVIDIA A100") for i in range(8)))
    assert causes(gpu_count(all_gpus(3, n3=a100), nodes(3))) == {"gpu-model": {"n3"}}


def test_mixed_models_in_a_node() -> None:
    mixed = gpus(devices=(*(gpu(i) for i in range(7)), gpu(7, name="NVIDIA A100")))
    assert "gpu-mixed" in causes(gpu_count({"n1": mixed}, nodes(1)))


def test_an_unread_model_is_neither_green_nor_another_model() -> None:
    nameless = gpus(devices=(*(gpu(i) for i in range(7)), gpu(7, name="")))
    findings = list(gpu_count(all_gpus(2, n2=nameless), nodes(2)))
    assert causes(findings) == {}
    (finding,) = (one for one in findings if one.status is not Status.PASS)
    assert (finding.target, finding.status) == ("n2", Status.UNKNOWN)
    assert "GPU 7" in finding.summary


def test_a_sick_gpu_without_a_name_is_said_elsewhere() -> None:
    sick = gpus(devices=(*(gpu(i) for i in range(7)), gpu(7, name="", error="GPU is lost")))
    assert {one.status for one in gpu_count(all_gpus(2, n2=sick), nodes(2))} == {Status.PASS}
