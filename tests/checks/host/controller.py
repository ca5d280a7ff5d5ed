"""A management controller that OpenIPMI's ipmi_sim plays, for the real ipmitool to ask over loopback."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

FAN, SUPPLY, POWER_UNIT = 0x04, 0x08, 0x09  # sensor types, IPMI 2.0 table 42-3
SPECIFIC, REDUNDANCY = 0x6F, 0x0B  # event/reading types, table 42-1
RPM = 18  # unit, table 43-15
LAN = """name "netdoctor"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
  endlan
  user 2 true "ipmi" "test" admin 10 none md2 md5 straight
"""


def missing() -> str:
    """Which of the programs is not here; "" for none."""
    return next((one for one in ("ipmi_sim", "ipmitool") if shutil.which(one) is None), "")


def argv(port: int) -> list[str]:
    return ["ipmitool", "-I", "lan", "-H", "127.0.0.1", "-p", str(port), "-U", "ipmi", "-P", "test"]


@dataclass
class Controller:
    """Commands of ipmi_sim_cmd(5)."""

    lines: list[str] = field(
        default_factory=lambda: [
            "mc_setbmc 0x20",
            "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02",
            "sel_enable 0x20 1000 0x0a",
        ]
    )
    _count: int = 0

    def fan(self, name: str, value: int, low: tuple[int, int, int], high: tuple[int, int, int]) -> None:
        """value: in hundreds of RPM; low, high: non-recoverable, critical, non-critical thresholds of it."""
        self._count += 1
        sensor = f"0x20 0 {self._count}"
        upper_and_lower = " ".join(map(str, (*high, *low)))
        every = " ".join(["000111111111111"] * 4)
        self.lines += [
            f"sensor_add {sensor} {FAN} 1",
            f"sensor_set_threshold {sensor} settable 111111 {upper_and_lower}",
            f"sensor_set_event_support {sensor} enable scanning per-state {every}",
            f"sensor_set_value {sensor} {value} 0",
        ]
        # IPMI 2.0 table 43-1: a full sensor record, of which value times 100 is the reading.
        self._record(1, [0x20, 0, self._count, 29, self._count, 0x7F, 0x68, FAN, 1, 0, 0, 0, 0, 0x3F, 0x3F,
            0, RPM, 0, 0, 100, *[0] * 9, 255, 0, 255, 255, 255, *[0] * 8], name)  # fmt: skip

    def states(self, name: str, kind: int, event: int, entity: int, bits: set[int]) -> None:
        """bits: the states that the sensor asserts."""
        self._count += 1
        sensor = f"0x20 0 {self._count}"
        every = " ".join(["111111111111111"] * 4)
        self.lines += [
            f"sensor_add {sensor} {kind} {event}",
            f"sensor_set_event_support {sensor} enable scanning per-state {every}",
            *(f"sensor_set_bit {sensor} {bit} 1 0" for bit in sorted(bits)),
        ]
        # Table 43-2: a compact sensor record.
        self._record(2, [0x20, 0, self._count, entity, self._count, 0x67, 0x40, kind, event,
            *[0xFF, 0x7F] * 3, 0xC0, 0, 0, 1, *[0] * 7], name)  # fmt: skip

    def _record(self, kind: int, body: list[int], name: str) -> None:
        body = [*body, 0xC0 | len(name), *name.encode()]
        record = [0, 0, 0x51, kind, len(body), *body]
        self.lines.append("main_sdr_add 0x20 " + " ".join(map(str, record)))

    def write(self, folder: Path, port: int) -> list[str]:
        """The command that plays it, from files in the folder."""
        (folder / "emu").write_text("\n".join([*self.lines, "mc_enable 0x20"]) + "\n", "utf-8")
        (folder / "lan").write_text(LAN.format(port=port), "utf-8")
        return ["ipmi_sim", "-n", "-c", f"{folder}/lan", "-f", f"{folder}/emu", "-s", f"{folder}/state"]
