"""`run` and `serve`: serve the devices of a scanner in one mode. `run` is for scripts.

The modes are device-plugin (a `PluginRunner`), dra (a `DraDriver`) and split (an `ApiSwitch`, which
also follows a mode that changes). The code of a mode that is not used is not imported.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from kubedevices.errors import KubedevicesError, UsageError, needs_h11
from kubedevices.host.terminal import print_to_stderr
from kubedevices.host.unblocked_output import unblocked_output
from kubedevices.plugin import stop_signals
from kubedevices.plugin.log_lines import configure_logging
from kubedevices.plugin.stop_signals import Beside, Runner

if TYPE_CHECKING:
    from kubedevices.dra.driver import DraDriver
    from kubedevices.dra.options import DraOptions
    from kubedevices.plugin.options import RunnerOptions
    from kubedevices.plugin.runner import PluginRunner
    from kubedevices.plugin.scanner import Scanner
    from kubedevices.serving.modes_of_devices import Mode
    from kubedevices.serving.options import TwoApisOptions
    from kubedevices.serving.switch import ApiSwitch

_log = logging.getLogger(__name__)


def _is_followed(options: Any) -> bool:
    """Whether the mode may change while the process runs."""
    return any(options.get(each) is not None for each in ("mode_file", "mode_label"))


def make_runner(scanner: "Scanner", domain: str, mode: str, options: Any) -> Runner:
    """Return the runner of `scanner` for this mode; raises `UsageError` for an unknown mode."""
    if mode == "device-plugin" and not _is_followed(options):
        from kubedevices.plugin.runner import PluginRunner  # noqa: PLC0415 - not for a driver

        return PluginRunner(scanner, domain=domain, **options)
    with needs_h11("mode dra"):
        from kubedevices.dra.driver import DraDriver  # noqa: PLC0415 - half of the memory
        from kubedevices.serving.switch_from_options import make_switch  # noqa: PLC0415
    if mode == "dra" and not _is_followed(options):
        return DraDriver(scanner, domain=domain, **options)
    return make_switch(scanner, domain, mode, options)


@overload
def serve(
    scanner: "Scanner",
    *,
    domain: str,
    mode: Literal["device-plugin"] = ...,
    **options: "Unpack[RunnerOptions]",
) -> contextlib.AbstractAsyncContextManager["PluginRunner"]: ...


@overload
def serve(
    scanner: "Scanner", *, domain: str, mode: Literal["dra"], **options: "Unpack[DraOptions]"
) -> contextlib.AbstractAsyncContextManager["DraDriver"]: ...


@overload
def serve(
    scanner: "Scanner", *, domain: str, mode: Literal["split"], **options: "Unpack[TwoApisOptions]"
) -> contextlib.AbstractAsyncContextManager["ApiSwitch"]: ...


@overload
def serve(
    scanner: "Scanner",
    *,
    domain: str,
    mode: "Mode",
    **options: "Unpack[TwoApisOptions]",
) -> contextlib.AbstractAsyncContextManager[Any]: ...


@contextlib.asynccontextmanager
async def serve(
    scanner: "Scanner", *, domain: str, mode: "Mode" = "device-plugin", **options: Any
) -> AsyncIterator[Any]:
    """Run a plugin while the body of `async with` runs, and stop it at the end of the body.

    If the plugin fails, the body is cancelled and the error of the plugin is raised.
    """
    runner = make_runner(scanner, domain, mode, options)
    body = asyncio.current_task()
    assert body is not None
    plugin = asyncio.create_task(runner.run(), name=f"plugin {domain}")
    is_over = failed = False

    def cancel_body(task: asyncio.Task[None]) -> None:
        nonlocal failed
        if not is_over and not task.cancelled() and task.exception():
            failed = True
            body.cancel()

    plugin.add_done_callback(cancel_body)
    try:
        yield runner
    except asyncio.CancelledError:
        if failed and body.uncancel() == 0:
            plugin.result()
        raise
    finally:
        is_over = True
        runner.stop()
        await asyncio.wait({plugin})
        error = plugin.exception()  # always read it: asyncio logs an exception that nobody reads
    if error:
        raise error


def run_until_signal(
    scanner: "Scanner",
    *,
    domain: str,
    mode: "Mode" = "device-plugin",
    listen: str | None = None,
    pod_resources: Path | None = None,
    check_host: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """Run a plugin until its scanner ends, or until SIGTERM or SIGINT. Raises `KubedevicesError`.

    `run` documents `listen` and `pod_resources`. `check_host` is called when the options are known
    to be right: an error of the host must not hide a mistake in them.
    """
    beside = None
    if listen is not None:
        beside = _pages(scanner, mode, listen, pod_resources, options)
    elif pod_resources is not None:
        raise UsageError("pod_resources needs listen")
    runner = make_runner(scanner, domain, mode, options)
    check_host()
    stop_signals.run_until_signal(runner, beside)


def _pages(
    scanner: "Scanner", mode: str, listen: str, pod_resources: Path | None, options: dict[str, Any]
) -> Beside:
    """Return the context that serves the pages; add a counter of Allocate calls to `options`."""
    from kubedevices.serving.plugin_pages import PluginPages  # noqa: PLC0415 - it loads Prometheus

    is_driver = mode == "dra" and not _is_followed(options)
    if is_driver and pod_resources is not None:
        raise UsageError(
            "pod_resources has no effect with mode='dra': the pages have the claims anyway"
        )
    pages = PluginPages(listen, scanner, pod_resources=pod_resources)
    if mode != "device-plugin" or _is_followed(options):
        from kubedevices.serving.driver_pages import pages_beside  # noqa: PLC0415 - half of the memory
    if is_driver:
        return lambda runner: pages_beside(pages, runner)
    also: Callable[[str, float], None] | None = options.get("on_allocated")

    def on_allocated(resource: str, seconds: float) -> None:
        pages.count_allocation(resource, seconds)
        if also is not None:
            also(resource, seconds)

    options["on_allocated"] = on_allocated

    def beside(runner: Any) -> contextlib.AbstractAsyncContextManager[object]:
        return pages_beside(pages, runner) if hasattr(runner, "driver") else pages.beside(runner)

    return beside


@overload
def run(
    scanner: "Scanner",
    *,
    domain: str,
    mode: Literal["device-plugin"] = ...,
    listen: str | None = ...,
    pod_resources: Path | None = ...,
    **options: "Unpack[RunnerOptions]",
) -> None: ...


@overload
def run(
    scanner: "Scanner",
    *,
    domain: str,
    mode: Literal["dra"],
    listen: str | None = ...,
    **options: "Unpack[DraOptions]",
) -> None: ...


@overload
def run(
    scanner: "Scanner",
    *,
    domain: str,
    mode: "Mode",
    listen: str | None = ...,
    pod_resources: Path | None = ...,
    **options: "Unpack[TwoApisOptions]",
) -> None: ...


def run(scanner: "Scanner", *, domain: str, mode: "Mode" = "device-plugin", **options: Any) -> None:
    """Serve the devices of `scanner` until SIGTERM or Ctrl-C. Use it as the last line of a script.

    In mode `device-plugin`, the devices are in the resources `domain/device type`. In mode `dra`,
    they are devices of the driver `domain`. In mode `split`, each device is in one of the two APIs.

    listen: serve /healthz, /readyz, /metrics and /state at this address, such as
        `127.0.0.1:9400`, or `*:9400` for all addresses of the machine.
    pod_resources: the podresources socket of the kubelet. With it, /metrics also says which
        container holds which device. Needs `listen`.

    It logs to stderr, unless logging is configured already. An error is printed as one line and
    ends the process with the exit code of the error. A slow reader of stdout or stderr does not
    block the process, see `kubedevices.host.unblocked_output`.
    """
    with unblocked_output():
        if not logging.getLogger().handlers:
            configure_logging("info", "text")
        try:
            run_until_signal(scanner, domain=domain, mode=mode, **options)
        except KubedevicesError as error:
            _log.debug("this led to the message below", exc_info=error)
            print_to_stderr(f"kubedevices: {error}")
            raise SystemExit(error.exit_code) from None
