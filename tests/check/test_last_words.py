"""The lines of a program's output that the report shows."""

import pytest

from kubedevices.check.last_words import is_crash, last_words

GO = """\
I1122 10:00:00.000000       1 main.go:10] Starting
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a1b2c]

goroutine 1 [running]:
net/http.(*conn).serve(0xc000012345, {0x7f, 0x1})
\t/usr/local/go/src/net/http/server.go:2009 +0x5f4
google.golang.org/grpc.(*Server).handleStream(0xc0001, 0x2)
\t/build/vendor/google.golang.org/grpc/server.go:1783 +0xfb
main.(*Plugin).Allocate(0xc0001a2000, 0x1)
\t/build/my plugin/main.go:77 +0x1d
"""
REPANICKED = """\
panic: runtime error: nil pointer dereference [recovered, repanicked]

goroutine 40 [running]:
example.com/helper.(*grpcServer).start.func1.1()
\t/build/helper/server.go:154 +0x1
panic({0x1, 0x2})
\t/usr/local/go/src/runtime/panic.go:783 +0x1
main.(*DeviceState).remove(0xc0001a2000, {0x1})
\t/build/state.go:367 +0x1d
main.(*Driver).unprepare(0xc0001a2000)
\t/build/driver.go:206 +0x1d
"""
FATAL = """\
E1122 10:00:00.000000       1 plugin.go:9] cannot dial
F1122 10:00:01.000000       1 main.go:42] registering: connection refused
goroutine 1 [running]:
k8s.io/klog/v2.stacks(0x1)
\t/go/pkg/mod/k8s.io/klog/v2/klog.go:1140 +0x8a
main.main()
\t/build/main.go:42 +0x1f
"""
MAPS = """\
fatal error: concurrent map writes

goroutine 7 [running]:
github.com/acme/widget/pkg/devices.(*Set).Add(...)
\t/build/pkg/devices/set.go:31
"""
PYTHON = """\
INFO starting
Traceback (most recent call last):
  File "/app/plugin.py", line 12, in main
    serve()
  File "/app/widgets/server.py", line 40, in serve
    grpc.server()
  File "/usr/lib/python3/dist-packages/grpc/_server.py", line 1, in server
    raise ValueError("no pool")
ValueError: no pool
INFO bye
"""
RUST = """\
thread 'main' panicked at src/main.rs:10:5:
called `CheckResult::unwrap()` on an `Err` value: Refused
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GO, ["panic: runtime error", "[signal SIGSEGV", "main.(*Plugin).Allocate"]),
        (REPANICKED, ["panic: runtime error", "main.(*DeviceState).remove"]),
        (FATAL, ["F1122", "main.main() at /build/main.go:42"]),
        (MAPS, ["fatal error: concurrent map writes", "devices.(*Set).Add(...) at /build/pkg"]),
        (PYTHON, ["ValueError: no pool", 'File "/app/widgets/server.py", line 40']),
        (RUST, ["panicked at src/main.rs:10:5", "called `CheckResult::unwrap()`"]),
    ],
)
def test_a_crash_is_its_message_and_its_own_frame(text: str, words: list[str]) -> None:
    """Neither the log before nor the tail of a trace: the message, and where its own code was."""
    said = last_words(text).splitlines()
    assert len(said) == len(words)
    for line, word in zip(said, words, strict=True):
        assert word in line


LOGGED = """\
E1122 10:00:00.000000       1 manager.go:93] Failed to serve a.b/c: connection refused
Cannot register to kubelet service
github.com/acme/widget/pkg/deviceplugin.(*server).setupAndServe
\t/build/pkg/deviceplugin/server.go:206
runtime.goexit
\t/usr/local/go/src/runtime/asm_amd64.s:1594
"""


def test_without_a_crash_the_end_is_shown() -> None:
    """The last lines that are not empty, but of an error with its stack the error."""
    assert last_words("a\nb\n\nc\nd\n\n") == "b\nc\nd"
    assert last_words("") == ""
    assert last_words(LOGGED) == "\n".join(LOGGED.splitlines()[:2])


def test_a_crash_differs_from_an_exit_by_decision() -> None:
    """An error message and exit code 1, or klog's Exit or Fatal, are an exit by decision."""
    assert all(map(is_crash, (GO, MAPS, PYTHON, RUST)))
    assert not is_crash("error: the kubelet is gone\n")
    assert not is_crash(FATAL)
