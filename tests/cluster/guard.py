"""guard.py ROOT: outlives the test that started it, however that ends. At the end of its standard input it kills every process
that has ROOT as its state folder, and removes ROOT. Python's standard library only."""
import os
import pathlib
import shutil
import signal
import sys
import threading

root = sys.argv[1]
variable = f"XDG_STATE_HOME={root}".encode()


def users():
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if variable in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
        except OSError:
            pass  # ended, or another user's


sys.stdin.buffer.read()
while left := list(users()):
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    threading.Event().wait(0.02)
shutil.rmtree(root, ignore_errors=True)
