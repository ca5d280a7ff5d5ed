"""What the agent says of GPUs, held against what ``nvidia-smi -q -x`` says of them."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from netdoctor.facts.gpu import Gpu, GpuFacts
from tests.agent.harness import AgentProcess


def number(text: str) -> float:
    """31 of ``31 C``, 700 of ``700.00 W``, 16 of ``16x``."""
    return float(text.partition(" ")[0].rstrip("x"))


def switch(text: str) -> bool:
    return {"Enabled": True, "Yes": True, "Disabled": False, "No": False}[text]


# Field of facts.gpu.Gpu, where nvidia-smi has it (releases differ), how that is read, and by how much it may
# have changed in between.
SAME: tuple[tuple[str, tuple[str, ...], Callable[[str], Any], float], ...] = (
    ("name", ("product_name",), str, 0),
    ("uuid", ("uuid",), str, 0),
    ("vbios", ("vbios_version",), str, 0),
    ("inforom", ("inforom_version/img_version",), str, 0),
    ("persistence", ("persistence_mode",), switch, 0),
    ("mig_enabled", ("mig_mode/current_mig",), switch, 0),
    ("ecc_enabled", ("ecc_mode/current_ecc",), switch, 0),
    ("sram_exceeded", ("ecc_errors/aggregate/sram_threshold_exceeded",), switch, 0),
    ("remap_pending", ("remapped_rows/remapped_row_pending",), switch, 0),
    ("remap_failed", ("remapped_rows/remapped_row_failure",), switch, 0),
    (
        "banks_without_spare",
        ("remapped_rows/row_remapper_histogram/row_remapper_histogram_none",),
        number,
        0,
    ),
    ("retired_pending", ("retired_pages/pending_retirement",), switch, 0),
    ("temperature_c", ("temperature/gpu_temp",), number, 10),
    ("margin_c", ("temperature/gpu_temp_tlimit",), number, 10),
    ("slowdown_margin_c", ("temperature/gpu_temp_slow_tlimit_threshold",), number, 0),
    ("operating_margin_c", ("temperature/gpu_temp_max_gpu_tlimit_threshold",), number, 0),
    ("slowdown_c", ("temperature/gpu_temp_slow_threshold",), number, 0),
    ("operating_c", ("temperature/gpu_temp_max_gpu_threshold",), number, 0),
    (
        "power_limit_w",
        (
            "gpu_power_readings/current_power_limit",
            "gpu_power_readings/power_limit",
            "power_readings/power_limit",
        ),
        number,
        0.01,
    ),
    (
        "power_default_w",
        ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
        number,
        0.01,
    ),
    ("pcie_width", ("pci/pci_gpu_link_info/link_widths/current_link_width",), number, 0),
    ("pcie_width_most", ("pci/pci_gpu_link_info/link_widths/max_link_width",), number, 0),
    ("pcie_generation", ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",), number, 0),
    ("pcie_replays", ("pci/replay_counter",), number, 100),
)
CLOCKS = ("applications_clocks", "clocks_set_mhz"), ("default_applications_clocks", "clocks_default_mhz")


def said(gpu: ElementTree.Element, *paths: str) -> str | None:
    """What nvidia-smi tells at the first of these places."""
    texts = ((gpu.findtext(path) or "").strip() for path in paths)
    return next((text for text in texts if text and "N/A" not in text and not text.startswith("[")), None)


def differences(gpu: ElementTree.Element, fact: Gpu) -> Iterator[str]:
    """Where the two do not agree; what nvidia-smi tells, we have to know."""
    for name, paths, read, most in SAME:
        text, ours = said(gpu, *paths), getattr(fact, name)
        if text is None or (name == "sram_exceeded" and fact.sram_refused):
            continue
        theirs = read(text)
        agree = ours is not None and (ours == theirs or (most and abs(ours - theirs) <= most))
        if not agree:
            yield f"{name}: {ours}, nvidia-smi says {text}"
    for path, name in CLOCKS:
        texts = said(gpu, f"{path}/graphics_clock"), said(gpu, f"{path}/mem_clock")
        if texts[0] and texts[1] and getattr(fact, name) != (number(texts[0]), number(texts[1])):
            yield f"{name}: {getattr(fact, name)}, nvidia-smi says {texts}"
    kinds = ("multiple_single_bit_retirement", "double_bit_retirement")
    pages = [said(gpu, f"retired_pages/{kind}/retired_count") for kind in kinds]
    if all(pages) and fact.retired_pages != sum(number(text or "") for text in pages):
        yield f"retired_pages: {fact.retired_pages}, nvidia-smi says {pages}"


# Places as an H100 has them (570.124) and, behind it, those of boards that are older; values made up.
H100 = """
<gpu id="00000000:17:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-1</uuid>
<vbios_version>96.00.A5.00.01</vbios_version>
<inforom_version><img_version>G520.0200.00.05</img_version><oem_object>2.1</oem_object></inforom_version><persistence_mode>Enabled</persistence_mode>
<mig_mode><current_mig>Disabled</current_mig></mig_mode>
<pci><pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths>
</pci_gpu_link_info><replay_counter>3</replay_counter></pci>
<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
<ecc_errors><aggregate><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate></ecc_errors>
<retired_pages><multiple_single_bit_retirement><retired_count>2</retired_count></multiple_single_bit_retirement>
<double_bit_retirement><retired_count>1</retired_count></double_bit_retirement>
<pending_retirement>N/A</pending_retirement></retired_pages>
<remapped_rows><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
<row_remapper_histogram><row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none>
</row_remapper_histogram></remapped_rows>
<temperature><gpu_temp>33 C</gpu_temp><gpu_temp_tlimit>53 C</gpu_temp_tlimit>
<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>
<gpu_temp_max_gpu_tlimit_threshold>0 C</gpu_temp_max_gpu_tlimit_threshold></temperature>
<gpu_power_readings><current_power_limit>700.00 W</current_power_limit>
<default_power_limit>700.00 W</default_power_limit></gpu_power_readings>
<applications_clocks><graphics_clock>1980 MHz</graphics_clock><mem_clock>2619 MHz</mem_clock>
</applications_clocks>
<default_applications_clocks><graphics_clock>1980 MHz</graphics_clock><mem_clock>N/A</mem_clock>
</default_applications_clocks></gpu>
"""


def test_what_differs_is_seen() -> None:
    facts: dict[str, Any] = {
        "index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "vbios": "96.00.A5.00.01",
        "persistence": True, "mig_enabled": False, "ecc_enabled": True, "sram_exceeded": False,
        "remap_pending": False, "remap_failed": False, "banks_without_spare": 0, "retired_pages": 3,
        "temperature_c": 31, "margin_c": 55, "slowdown_margin_c": -2, "operating_margin_c": 0,
        "power_limit_w": 700.0, "power_default_w": 700.0, "pcie_width": 16, "pcie_width_most": 16,
        "pcie_generation": 5, "pcie_replays": 3, "clocks_set_mhz": (1980, 2619), "inforom": "G520.0200.00.05",
    }  # fmt: skip
    there = ElementTree.fromstring(H100)
    assert list(differences(there, Gpu(**facts))) == []
    for name, value in facts.items():
        if name != "index":
            wrong = {bool: lambda old: not old, str: lambda _: "x", tuple: lambda _: (1, 2)}
            other = wrong.get(type(value), lambda old: old + 1000)(value)
            found = list(differences(there, Gpu(**{**facts, name: other})))
            assert [one.partition(":")[0] for one in found] == [name]
    unread = list(differences(there, Gpu(**{**facts, "margin_c": None})))
    assert unread == ["margin_c: None, nvidia-smi says 53 C"]
    assert not list(differences(there, Gpu(**{**facts, "sram_exceeded": None}, sram_refused=True)))


LINK = re.compile(r"Link (\d+): (?:([\d.]+) GB/s|(Replay|Recovery|CRC) Errors: (\d+))")


def links(text: str) -> tuple[dict[int, int], dict[tuple[str, int], int]]:
    """What ``nvidia-smi nvlink -s`` and ``-e`` say of a GPU: (MB/s of each link that is up, errors by counter
    and link)."""
    speeds, errors = {}, {}
    for link, speed, counter, count in LINK.findall(text):
        if speed:
            speeds[int(link)] = round(float(speed) * 1000)
        else:
            word = {"Replay": "replays", "Recovery": "recoveries", "CRC": "crc_errors"}[counter]
            errors[word, int(link)] = int(count)
    return speeds, errors


def of_links(gpu: Gpu) -> tuple[dict[int, int], dict[tuple[str, int], int]]:
    """The same as the agent says it."""
    up = set(range(gpu.nvlinks or 0)) - set(gpu.nvlinks_down)
    speeds = dict.fromkeys(up, gpu.nvlink_mbyte_s or 0) | dict(gpu.nvlinks_other_mbyte_s)
    errors = {(word, link): dict(own).get(link, 0) for word, own in gpu.link_errors.items() for link in up}
    return speeds, errors


def test_links_as_nvidia_smi_prints_them() -> None:
    text = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
\t Link 2: 13.281 GB/s
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 2
\t Link 2: CRC Errors: 7
"""
    speeds = {0: 26562, 2: 13281}
    assert links(text) == (speeds, {("replays", 0): 0, ("recoveries", 0): 2, ("crc_errors", 2): 7})
    counted: Any = {"replays": (), "recoveries": ((0, 2),), "crc_errors": ((2, 7),)}
    fact = Gpu(
        index=0, nvlinks=3, nvlinks_down=(1,), nvlink_mbyte_s=26562, nvlinks_other_mbyte_s=((2, 13281),),
        link_errors=counted,
    )  # fmt: skip
    ours = of_links(fact)
    assert ours[0] == speeds
    assert {key: ours[1][key] for key in links(text)[1]} == links(text)[1]


@pytest.mark.gpu
def test_gpus_are_as_nvidia_smi_says() -> None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        pytest.skip("no nvidia-smi")
    asked = subprocess.run([smi, "-q", "-x"], capture_output=True, text=True, timeout=60, check=False)
    if asked.returncode:
        pytest.skip(f"nvidia-smi: {asked.stdout.strip() or asked.stderr.strip()}")
    with AgentProcess(provide=True) as agent:
        facts = msgspec.convert(agent.facts(gpu={})["gpu"]["value"], type=GpuFacts)
    theirs = {gpu.findtext("uuid"): gpu for gpu in ElementTree.fromstring(asked.stdout).iter("gpu")}
    assert {gpu.uuid for gpu in facts.devices} == set(theirs)
    assert facts.driver_version in asked.stdout
    for gpu in facts.devices:
        assert gpu.error is None
        assert list(differences(theirs[gpu.uuid], gpu)) == []
        assert gpu.temperature_c is not None
        for flag, which in (("-s", 0), ("-e", 1)):
            argv = [smi, "nvlink", flag, "-i", gpu.uuid]
            told = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
            theirs_of_links, ours = links(told)[which], of_links(gpu)[which]
            assert {key: ours.get(key) for key in theirs_of_links} == theirs_of_links
