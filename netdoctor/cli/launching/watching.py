"""A trial with its live page: the job in a thread, the screen in front of it."""

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from netdoctor.cli.tui import is_light

if TYPE_CHECKING:
    from netdoctor.launch import LaunchPlan
    from netdoctor.trial.following import Follower
    from netdoctor.trial.judging import Ended
    from netdoctor.trial.running import Trial
    from netdoctor.tui.trial.page import Picture


class Watcher:
    """Shows one trial. `update` is for the trial to call; `run` runs it, and shows it until it is over."""

    picture: "Picture"

    def __init__(self, plan: "LaunchPlan", limit_s: float, what: str) -> None:
        """what: of a ladder, the rung."""
        self.ranks = {node.id: node.count for node in plan.nodes}
        self.limit_s, self.what = limit_s, what

    def update(self, job: "Follower", seconds: float) -> None:
        """Make the picture here, in the thread that changes the job: the screen only draws it."""
        from netdoctor.trial.watching import picture_of

        self.picture = picture_of(job, seconds, self.limit_s, self.ranks, self.what)

    def run(self, trial: "Trial", stopped: list[int]) -> "Ended":
        """How it ended. stopped: takes the number of a signal that asked for it."""
        from netdoctor.tui.trial.app import TrialApp

        self.update(trial.follower, 0.0)
        ends: list[Ended] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                ends.append(trial.run())
            except BaseException as error:  # it belongs to whoever waits for this thread
                errors.append(error)

        def stop() -> None:
            # What ends on the nodes already is waited for.
            if not trial.follower.closing:
                trial.transport.interrupt(KeyboardInterrupt())

        thread = threading.Thread(target=work, name="trial", daemon=True)
        app = TrialApp(lambda: self.picture, lambda: not thread.is_alive(), stop, light=is_light())
        thread.start()
        try:
            app.run()
        finally:
            if thread.is_alive() and not app.hurried:
                stop()
                thread.join()
        if thread.is_alive():
            sys.stderr.flush()
            os._exit(128 + (app.signal or signal.SIGINT))  # each node ends the job when our pipes close
        if app.signal:
            stopped.append(app.signal)
        if errors:
            trial.transport.close()
        if app.crash or errors:
            raise app.crash or errors[0]
        return ends[0]
