"""The same work on devices of one kind: whose bits differ from its own before, or from those of its peers."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import Bits, DeviceBits, GpuBits
from netdoctor.model import LIKELY, PEERS, Action, Cause, Finding, look, ok, seen, skip, unknown

WRONG = Cause("gpu-bits-wrong", "{nodes} computed wrong bits", action=Action.REPLACE)
ONE_OF = Cause("gpu-bits-disagree", "equal work gave different bits on {nodes}", LIKELY, action=Action.DRAIN)
GROUPS = Cause("gpu-bits-groups", "devices of {nodes} give the same work in two ways", LIKELY)
MOST = 4  # results that a finding lists

DeviceId = tuple[str, int]  # node and index


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one piece of work came to on one device, where that is not as expected."""

    cause: Cause
    text: str


@check(
    after=["sw.start", "gpu.visible"],
    profile="full",
    cost="loads-gpu",
    required=False,
    source="https://docs.nvidia.com/cuda/cublas/#results-reproducibility",
)
def gpu_bits(nodes: Mapping[str, GpuBits]) -> Iterator[Finding]:
    """The same work gives the same bits on every GPU of one kind, every time.

    Looks at:
        Three seconds of seeded work on each idle GPU, all at once, in the job's torch with deterministic
        settings: matrix products, attention, sums and softmax. The bits of each result are added up, round by
        round. They are compared with the other rounds of the same GPU and with GPUs of one kind: same model,
        driver, torch, CUDA, cuDNN, loaded libraries and variables. A GPU that is the only one of its kind is
        compared with itself alone. A GPU that is in use, in MIG mode or partitioned is not touched. Where a
        node has no GPU, one thread of its CPU does the work as a stand-in, and the result says so: of the
        GPUs that a job uses it says nothing.

    Matters because:
        A processor that computes wrong now and then reports no error: the loss drifts, or becomes NaN, and
        nothing says where (https://arxiv.org/abs/2102.11245). Deterministic settings give equal bits on
        equal hardware and software (https://docs.pytorch.org/docs/stable/notes/randomness.html), so that
        other bits are a fault. Several devices that agree on another result are not faulty by chance: their
        libraries compute in another way.

    Fix:
        Take the device out of service and run the check again, then the vendor's own test. Of two devices
        that disagree, compare each with a third. Of groups, compare their libraries.
    """
    kinds: dict[str, dict[DeviceId, DeviceBits]] = defaultdict(dict)
    for node, found in nodes.items():
        for device in found.devices:
            if device.results:
                kinds[device.kind][node, device.index] = device
            if device.error:
                text = f"{_name(found, device)} did not do its work: {device.error}"
                yield unknown(node, text)
            elif not device.results or device.rounds < 2:
                yield unknown(node, f"{_name(found, device)} did not repeat its work")
        if found.left_out:
            first = next(iter(found.left_out.values()))
            who = listing([f"GPU {index}" for index in found.left_out], 4)
            yield skip(f"{who} took no part: {first}", node, gap="some GPUs took no part")
    odd: set[str] = set()
    for devices in kinds.values():
        for (node, index), verdicts in _verdicts(devices).items():
            odd.add(node)
            yield _finding(node, nodes[node], devices[node, index], verdicts)
    for node, found in nodes.items():
        worked = [one for one in found.devices if one.results and one.rounds > 1 and not one.error]
        if worked and node not in odd:
            yield _equal(node, found, worked, [len(kinds[one.kind]) - 1 for one in worked])


def _verdicts(devices: Mapping[DeviceId, DeviceBits]) -> dict[DeviceId, list[Verdict]]:
    """What is wrong with devices of one kind, by device."""
    found: dict[DeviceId, list[Verdict]] = defaultdict(list)
    for work in dict.fromkeys(row.work for one in devices.values() for row in one.results):
        results = {
            who: rows
            for who, one in devices.items()
            if (rows := [row for row in one.results if row.work == work])
        }
        votes = _votes(results)
        count = Counter(votes.values())
        common, many = count.most_common(1)[0] if count else ("", 0)
        right = common if 2 * many > len(votes) else ""
        for who, rows in results.items():
            if len(rows) > 1:
                text = _itself(work, rows, right or votes.get(who, ""), devices[who].rounds)
                found[who].append(Verdict(WRONG, text))
            elif (bits := rows[0].bits) != right:
                found[who].append(_against_peers(work, count[bits], many if right else 0, len(votes)))
    return found


def _votes(results: Mapping[DeviceId, list[Bits]]) -> dict[DeviceId, str]:
    """The result that each device stands for. Who disagrees with itself has a say only where all do, and
    then where one result came in more than half of its rounds."""
    sure = {who: rows[0].bits for who, rows in results.items() if len(rows) == 1}
    if sure:
        return sure
    votes = {}
    for who, rows in results.items():
        first = max(rows, key=lambda row: row.rounds)
        if 2 * first.rounds > sum(row.rounds for row in rows):
            votes[who] = first.bits
    return votes


def _itself(work: str, rows: list[Bits], right: str, rounds: int) -> str:
    others = [row for row in rows if row.bits != right]
    where = listing([f"round {row.first}" for row in others], MOST)
    times = sum(row.rounds for row in others)
    return f"{work}: other bits than before, first in {where} ({times} of {rounds} rounds)"


def _against_peers(work: str, same_bits: int, right: int, voters: int) -> Verdict:
    """Of a device that always gives the same, and not what most give. same_bits: devices with it; right:
    those that give what most do, 0 where there is no majority."""
    if same_bits > 1:
        # A fault does not give the same wrong bits on two devices.
        return Verdict(GROUPS, f"{work}: {same_bits} of {voters} devices give these bits, from round 1 on")
    if right:
        return Verdict(WRONG, f"{work}: other bits than {right} devices, from round 1 on")
    part = "one of the two" if voters == 2 else f"one of {voters}"
    return Verdict(ONE_OF, f"{work}: {part} that give different bits, from round 1 on")


def _finding(node: str, found: GpuBits, device: DeviceBits, verdicts: list[Verdict]) -> Finding:
    """One finding a device, by the gravest of what it did."""
    cause = next(c for c in (WRONG, ONE_OF, GROUPS) if any(one.cause is c for one in verdicts))
    texts = [one.text for one in verdicts if one.cause is cause]
    say = cause.warn if cause is GROUPS else cause.fail
    if cause is GROUPS:
        fix = look(
            "compare what torch loads on both", "ldconfig -p | grep -E 'cublas|cudnn'; env | grep -i cuda"
        )
    elif found.cpu:
        fix = look("take the node out of service, and read its machine checks", "ras-mc-ctl --errors; dmesg")
    elif device.kind.find("HIP None") < 0:
        fix = look("take the GPU out of service, and test it", "amd-smi metric --ecc --ecc-blocks")
    else:
        fix = look("take the GPU out of service, and test it", f"dcgmi diag -r 3 -i {device.index}")
    text = listing(texts, 2)
    return say(
        f"{_name(found, device)} disagrees: {text}",
        at=node,
        observed=text,
        expected=PEERS("the same bits on equal devices, in every round"),
        seen=seen(f"torch, {_name(found, device)}, {device.kind}", "\n".join(texts)),
        fixes=fix,
    )


def _equal(node: str, found: GpuBits, worked: list[DeviceBits], peers: list[int]) -> Finding:
    names = listing(list(dict.fromkeys(one.name for one in worked)), 2)
    what = f"{names}, as a stand-in, as there is no GPU" if found.cpu else f"{len(worked)} x {names}"
    rounds = min(one.rounds for one in worked)
    alone = not all(peers)
    peers_text = "compared with itself only" if alone else f"the same as {min(peers)} others of the kind"
    text = f"{what}, torch {found.torch}: the same bits in {rounds} rounds, {peers_text}"
    gap = "no other device of its kind to compare with" if alone else None
    return ok(node, text, observed=text, gap=gap)


def _name(found: GpuBits, device: DeviceBits) -> str:
    return "the CPU (as there is no GPU)" if found.cpu else f"GPU {device.index}"
