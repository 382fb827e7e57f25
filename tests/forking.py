"""The rule of forks in tests: no process forks after it has loaded grpcio.

grpcio does not support this: a child may wait forever for a lock or a thread that only its parent
has. A process of the tests that needs another process executes a program (`subprocess`).
"""

import sys


def may_fork() -> None:
    """Raise RuntimeError if this process has loaded grpcio."""
    if "grpc" in sys.modules:
        raise RuntimeError("this process has loaded grpcio, which does not survive a fork")
