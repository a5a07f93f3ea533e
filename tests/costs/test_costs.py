"""The time of a process is counted while it runs, when it has ended, and when it has lost its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.costs.processes import ProcessTree
from tests.waiting import HANG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
WORK_S = 0.2
WORKS = f"import sys, time\nwhile time.process_time() < {WORK_S}: pass\nprint(flush=True)\nsys.stdin.read()"
COMMAND = [sys.executable, "-S", "-E", "-c", WORKS]
LEAVES_IT = f"import subprocess; subprocess.Popen({COMMAND!r})"


def test_running_and_ended() -> None:
    tree = ProcessTree()
    before_s = tree.cpu_s()
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running_s = tree.cpu_s() - before_s
        child.communicate(timeout=HANG_S)
    ended_s = tree.cpu_s() - before_s
    assert ended_s >= running_s - 0.02 >= WORK_S - 0.04  # ticks are of 10 ms


def test_without_its_parent() -> None:
    tree = ProcessTree()
    before_s = tree.cpu_s()
    command = [sys.executable, "-S", "-E", "-c", f"{LEAVES_IT}; input()"]
    to_child, own_end = os.pipe()
    with subprocess.Popen(command, stdin=to_child, stdout=subprocess.PIPE) as parent:
        os.close(to_child)
        assert parent.stdout is not None
        parent.stdout.readline()
        assert tree.cpu_s() - before_s >= WORK_S - 0.02
        parent.kill()
        parent.wait(HANG_S)
        subprocess.run([sys.executable, "-S", "-E", "-c", ""], check=True)  # another that is waited for
        seen_s = tree.cpu_s()
        assert seen_s - before_s >= WORK_S - 0.02
        os.close(own_end)  # which ends the other
        parent.stdout.read()
    assert tree.cpu_s() >= seen_s - 0.02


def test_a_run_of_pytest_is_told_by_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_one(): pass\n")
    command = [sys.executable, "-m", "tests.costs", "--by", "test", sys.executable, "-m", "pytest", "-q"]
    told = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path / "test_it.py")],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "test_it.py::test_one" in told.stdout
    assert "processors busy" in told.stdout
