"""`try --via ray` on a real Ray cluster: actors start the job, and nothing of it is left."""

import shutil
import sys
from pathlib import Path

from tests.ray.conftest import Ray
from tests.scan.harness import until

STAND_IN = Path(__file__).parents[1] / "trial" / "stand_in"


def test_a_job_on_a_ray_cluster_is_started_and_gone(ray: Ray) -> None:
    job = ray.site / "stand_in"
    shutil.copytree(STAND_IN, job, dirs_exist_ok=True)
    python = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    options = ["--no-scan", "-p", "quick", "--nproc", "1", "--for", "4", "--chdir", "/", "-q"]
    line = 'mkdir -p /root/run && cd /root/run && rm -rf .netdoctor && exec "$0" "$@"'
    words = [
        "-m",
        "netdoctor",
        "try",
        "--via",
        "ray",
        "--ray-python",
        ray.python,
        "--python",
        "/usr/bin/python3",
    ]
    done = ray.run(
        ray.lab.nodes[0], "sh", "-c", line, python, *words, *options, "--", "python3", str(job / "job.py")
    )
    assert done.stdout.startswith("STARTED   all 4 ranks joined"), done.stdout + done.stderr
    assert done.returncode == 0
    until(lambda: not ray.processes("stand_in/job.py"), "no process of the job is left")
