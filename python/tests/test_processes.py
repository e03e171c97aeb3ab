"""The interpreter ends while threads are inside calls, and processes fork while they are."""

import os
import subprocess
import sys

import pytest

# Threads that call and call; `calls` by name, so that each is tried alone.
WORK = """
import multiprocessing, os, sys, threading, time
import numpy as np
import octavo

rng = np.random.default_rng(0)
x = rng.normal(0, 3, (512, 1024)).astype(np.float32)
w = rng.integers(-128, 128, (256, 1024)).astype(np.int8)
packed = octavo.pack(w)
threads = octavo.Stream(threads=4)
statistics = octavo.Statistics(sample_rows=16, histogram_bits=7)


class OnlyDLPack:
    def __dlpack__(self):
        return x.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


def refused():
    try:
        octavo.quantize(x, 0.0)
    except octavo.Error:
        pass


class Slow:
    # A number and a path that take a while.

    def __index__(self):
        time.sleep(0.002)
        return 0

    def __float__(self):
        time.sleep(0.002)
        return 0.1

    def __fspath__(self):
        time.sleep(0.002)
        return "/nowhere"


def quiet(call):
    def run():
        try:
            call()
        except octavo.Error:
            pass

    return run


CALLS = {
    "quantize": lambda: octavo.quantize(x, 0.1, stream=threads),
    "small": lambda: octavo.quantize(x[0], 0.1),
    "dynamic": lambda: octavo.quantize_dynamic(x, stream=threads)[0],
    "linear": lambda: octavo.linear(x, packed, 0.1, stream=threads),
    "pack": lambda: octavo.pack(w).serialize(),
    "dlpack": lambda: octavo.quantize(OnlyDLPack(), 0.1, stream=threads),
    "statistics": lambda: statistics.update("layer", x),
    "layer": lambda: statistics.layer("layer"),
    "refused": refused,
    "index": quiet(lambda: octavo.quantize(x[0], 0.1, axis=Slow())),
    "float": lambda: octavo.quantize(x[0], Slow()),
    "path": quiet(lambda: octavo.Statistics.read(Slow())),
}


def start(names, daemon=True):
    def run(call):
        while not stop.is_set():
            call()

    workers = [threading.Thread(target=run, args=(CALLS[n],), daemon=daemon) for n in names]
    for worker in workers:
        worker.start()
    return workers


stop = threading.Event()
"""


def run(program, timeout=120):
    """What a program prints, if it ends well and in time."""
    done = subprocess.run(
        [sys.executable, "-c", WORK + program], capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stderr == "", done.stderr
    return done.stdout


CALLS = ["quantize", "small", "dynamic", "linear", "pack", "dlpack", "statistics", "refused"]
CALLS += ["index", "float", "path"]  # code of the caller's runs inside, and gives up the GIL


@pytest.mark.parametrize("name", CALLS)
def test_the_interpreter_ends_while_daemon_threads_call(name):
    for wait in (0.0, 0.01, 0.05):
        program = f"start(4 * [{name!r}]); time.sleep({wait}); print('end')"
        assert run(program) == "end\n"


FORKS = """
workers = start(["quantize", "dynamic", "linear", "pack", "statistics", "small"], daemon=False)
names = ["quantize", "small", "dynamic", "linear", "pack", "dlpack"]
want = {}


def bytes_of(result):
    return result if isinstance(result, bytes) else result.tobytes()


def child():
    for name in names:
        assert bytes_of(CALLS[name]()) == want[name], name
    fresh = octavo.Stream(threads=3)  # one that is made here, and ends here
    assert octavo.quantize(x, 0.1, stream=fresh).tobytes() == want["quantize"]
    del fresh
    before = statistics.layer("layer")["count"]
    assert before % len(x) == 0
    statistics.update("layer", x)
    assert statistics.layer("layer")["count"] == before + len(x)
    mine = octavo.Statistics()
    mine.update("layer", x)
    mine.merge(statistics)
    refused()


def wait_for(pid):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"


statistics.update("layer", x)
for name in names:
    want[name] = bytes_of(CALLS[name]())
"""
END = """
stop.set()
for worker in workers:
    worker.join()
print(results)
for name in names:  # the parent has lost nothing
    assert bytes_of(CALLS[name]()) == want[name], name
"""


def test_a_child_of_fork_gets_the_same_bits_while_threads_of_its_parent_run():
    got = run(
        FORKS
        + """
results = []
for i in range(20):
    pid = os.fork()
    if pid == 0:
        try:
            child()
            if i % 2:
                os._exit(0)  # at once; the others end as programs do
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        stop.set()
        sys.exit(0)
    results.append(wait_for(pid))
"""
        + END
    )
    assert got.endswith(f"{[0] * 20}\n"), got


def test_processes_of_multiprocessing_and_their_children():
    got = run(
        FORKS
        + """
def family():
    child()
    grandchild = multiprocessing.get_context("fork").Process(target=child)
    grandchild.start()
    grandchild.join(60)
    assert grandchild.exitcode == 0


results = []
for _ in range(5):
    process = multiprocessing.get_context("fork").Process(target=family)
    process.start()
    process.join(60)
    results.append(process.exitcode)
    if process.exitcode is None:
        process.kill()
"""
        + END
    )
    assert got.endswith(f"{[0] * 5}\n"), got


def test_a_thread_forks():
    """The child has one thread, which is not the first of its parent, and that ends as one does."""
    got = run(
        FORKS
        + """
results = []
parent = os.getpid()


def fork():
    CALLS["linear"]()
    pid = os.fork()
    if pid == 0:
        child()
        return
    results.append(wait_for(pid))


for _ in range(5):
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
if os.getpid() != parent:
    os._exit(0)
"""
        + END
    )
    assert got.endswith(f"{[0] * 5}\n"), got


def test_a_child_of_a_parent_that_has_not_begun_uses_threads():
    """Only where threads were started and lost does the calling one do all the work."""
    program = """
import os, sys
import numpy as np
import octavo
x = np.ones((1024, 1024), np.float32)
pid = os.fork()
if pid == 0:
    octavo.quantize(x, 0.1, stream=octavo.Stream(threads=2))
    os._exit(0 if len(os.listdir("/proc/self/task")) > 1 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout == "0\n", done.stderr
