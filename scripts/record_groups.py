"""Record the groups that Megatron-LM makes: `python record_groups.py >tests/localiser/megatron_groups.jsonl`.

For an interpreter with torch and megatron-core (0.16.1 when it was run last). Its own
`initialize_model_parallel` divides random worlds; what it asks torch for is kept, no process group is made.
"""

import json
import random
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any
from unittest import mock

from megatron.core import parallel_state  # type: ignore[import-not-found]

GROUPS = {
    "tp": parallel_state.get_tensor_model_parallel_group,
    "cp": parallel_state.get_context_parallel_group,
    "dp": lambda: parallel_state.get_data_parallel_group(with_context_parallel=True),
    "ep": parallel_state.get_expert_model_parallel_group,
    "pp": parallel_state.get_pipeline_model_parallel_group,
}


def groups(rank: int, world: int, sizes: dict[str, int]) -> dict[str, list[int]]:
    """The ranks of each group that this rank is in."""

    def made(ranks: list[int] | None = None, *_: object, **__: object) -> object:
        return SimpleNamespace(ranks=ranks, name=lambda: "", size=lambda: len(ranks or ()))

    torch_distributed: dict[str, Any] = {
        "is_initialized": lambda: True,
        "get_world_size": lambda *_: world,
        "get_rank": lambda *_: rank,
        "new_group": made,
    }
    parallel_state.destroy_model_parallel()
    with mock.patch.multiple("torch.distributed", **torch_distributed):
        parallel_state.initialize_model_parallel(
            sizes["tp"],
            sizes["pp"],
            context_parallel_size=sizes["cp"],
            expert_model_parallel_size=sizes["ep"],
            expert_tensor_parallel_size=sizes.get("etp"),
            create_gloo_process_groups=False,
        )
        return {kind: list(get().ranks) for kind, get in GROUPS.items()}


def main() -> None:
    """40 worlds of 2 to 96 ranks."""
    chance, done = random.Random(1), 0  # noqa: S311
    while done < 40:
        sizes = {name: chance.choice([1, 2, 3, 4, 8]) for name in ("tp", "cp", "pp", "ep")}
        if chance.random() < 0.5:
            sizes["etp"] = chance.choice([1, 2])
        world = chance.randint(2, 96)
        etp = sizes.get("etp", sizes["tp"])
        if world % (sizes["tp"] * sizes["cp"] * sizes["pp"]) or world % (etp * sizes["ep"] * sizes["pp"]):
            continue
        found: dict[str, list[list[int]]] = {kind: [] for kind in GROUPS}
        for rank in range(world):
            for kind, ranks in groups(rank, world, sizes).items():
                if ranks not in found[kind]:
                    found[kind].append(ranks)
        print(json.dumps({"megatron": version("megatron-core"), "world": world, **sizes, "groups": found}))
        done += 1


if __name__ == "__main__":
    main()
