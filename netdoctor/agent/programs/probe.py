"""Runs in each Python process of a job that is tried, as `sitecustomize`: says how far its rank is.

A datagram of JSON to the socket `events` beside this file: {"rank", "pid", "what"} with what ``loaded``
(torch's groups), ``waits`` (it has called init_process_group; {"world", "meets"} as its environment has them,
where these count), ``joined`` ({"world", "backend"}), ``step``
({"count", "at": monotonic seconds}). Asked by a signal, it writes its stack to the file `stack-PID` here.
Nothing of the job is changed: a function of torch is wrapped, and the hook that torch has for steps is used.
What cannot be sent is dropped, and no error of this file reaches the job.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GROUPS = "torch.distributed.distributed_c10d"
STEPS = "torch.optim.optimizer"
# The first three steps are reported at once; then at most one in so many seconds.
EVERY_S = 0.25

_folder = os.path.dirname(os.path.abspath(__file__))


class Mouth(object):
    """Says things to the agent, or nothing at all."""

    def __init__(self) -> None:
        self.socket = None  # type: Any
        self.pid = 0
        self.counts = {}  # type: dict[int, int]
        self.reported_s = 0.0

    def say(self, what: str, **more: "Any") -> None:
        try:
            import json
            import socket

            if self.socket is None or self.pid != os.getpid():
                self.pid = os.getpid()
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self.socket.setblocking(False)
                self.socket.connect(os.path.join(_folder, "events"))
            rank = os.environ.get("RANK", "")
            event = dict(more, what=what, pid=self.pid)
            event.setdefault("rank", int(rank) if rank.isdigit() else None)
            self.socket.send(json.dumps(event).encode("ascii"))
        except Exception:  # the job goes first
            pass

    def step(self, optimizer: "Any", *_: "Any") -> None:
        try:
            import time

            key = id(optimizer)
            self.counts[key] = self.counts.get(key, 0) + 1
            count = max(self.counts.values())
            now = time.monotonic()
            if count <= 3 or now - self.reported_s >= EVERY_S:
                self.reported_s = now
                self.say("step", count=count, at=now)
        except Exception:  # the job goes first
            pass


_mouth = Mouth()


def _answer_with_stack() -> None:
    try:
        import faulthandler
        import signal

        file = open(os.path.join(_folder, "stack-%d" % os.getpid()), "w")  # noqa: SIM115  # for as long as it runs
        faulthandler.register(signal.SIGRTMAX - 2, file=file, all_threads=False)
        _open_files.append(file)
    except Exception:  # without signals, or another thread than the main one: no stack, and the job goes on
        pass


_open_files = []  # type: list[Any]


def _launch() -> "dict[str, Any]":
    world = os.environ.get("WORLD_SIZE", "")
    meets = "%s:%s" % (os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
    return {"world": int(world) if world.isdigit() and len(world) < 9 else 0, "meets": meets[:120]}


def _watch_groups(module: "Any") -> None:
    import functools

    _answer_with_stack()
    _mouth.say("loaded")
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: "Any", **kwargs: "Any") -> "Any":
        # Whoever says more than the backend may mean other numbers than those of the environment.
        plain = len(args) < 2 and not set(kwargs) & {"init_method", "store", "rank", "world_size"}
        _mouth.say("waits", **(_launch() if plain else {}))
        result = original(*args, **kwargs)
        try:
            more = {
                "rank": module.get_rank(),
                "world": module.get_world_size(),
                "backend": module.get_backend(),
            }
            _mouth.say("joined", **more)
        except Exception:  # a group that has no such thing: as if nothing was there to tell
            pass
        return result

    module.init_process_group = init_process_group


def _watch_steps(module: "Any") -> None:
    module.register_optimizer_step_post_hook(_mouth.step)


class Finder(object):
    """Lets the others find a module of `WATCHED`, and looks at it when it has been loaded."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        watch = WATCHED.get(name)
        if watch is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    _wrap(spec.loader, watch)
                return spec
        return None


def _wrap(loader: "Any", watch: "Any") -> None:
    original = loader.exec_module

    def exec_module(module: "Any") -> None:
        original(module)
        try:
            watch(module)
        except Exception:  # a release of torch without it
            pass

    loader.exec_module = exec_module


WATCHED = {GROUPS: _watch_groups, STEPS: _watch_steps}


def _the_hidden_one() -> None:
    """Run the `sitecustomize` that this one stands in front of."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _folder]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as e:
        if getattr(e, "name", None) != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)  # type: ignore[arg-type]


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Finder())
    _the_hidden_one()
