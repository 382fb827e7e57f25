"""The base of every middleware: what it does not change passes."""

import asyncio
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import ScanFailed, UsageError
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scanners import static
from kubedevices.rules.middleware import RuledMiddleware, innermost, layers
from kubedevices.rules.repair import Repaired
from kubedevices.testing import Bench
from tests.middleware_rig import scanned
from tests.widgets import Widgets, widgets


class Marked(kd.Middleware):
    """Serves `TYPE` as `TYPE.marked`; marks devices and answers with a word."""

    def __init__(self, scanner: kd.Scanner, word: str = "here") -> None:
        super().__init__(scanner)
        self.word = word

    def line(self) -> str:
        return f"marks with {self.word!r}"

    def inner_type(self, device_type: str) -> str:
        return device_type.removesuffix(".marked")

    def change(self, tree: kd.DeviceTree, now: float) -> kd.DeviceTree:
        return kd.DeviceTree(
            {
                f"{name}.marked": [
                    replace(each, env={**each.env, "MARK": self.word})
                    for each in tree.devices(name).values()
                ]
                for name in tree
            }
        )

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> kd.Relay:
        return _Marking(inner, device_type, inner_type)


class _Marking(kd.Relay):
    adds = frozenset({kd.Allocator, kd.PostAllocator})

    async def edit(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        for container in response.containers:
            container.annotations["marks"] = container.annotations.get("marks", "") + "+"


class Able(Widgets, kd.Allocator, kd.PreferredAllocator, kd.ContainerPreStarter, kd.TypeStarter):
    """A plugin with some abilities, some of them in threads; notes what it was told."""

    def __init__(self, **types: list[kd.Device]) -> None:
        super().__init__(**types)
        self.told: list[object] = []

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        self.told.append(request)
        return kd.AllocateResponse(
            [kd.ContainerAllocateResponse(env={"OWN": "1"}) for _ in request.containers]
        )

    async def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        return kd.PreferredAllocationResponse(tuple(c.available[-c.size :] for c in request[0]))

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        self.told.append(request)

    def on_type_added(self, device_type: str) -> None:
        self.told.append(device_type)


def test_a_scanner_behind_middleware_is_a_plugin_as_any_other() -> None:
    """Its devices reach a container of the node, changed; the framework answers, and is edited."""
    scanner = Marked(static(kd.DeviceTree({"widget": [kd.Device("w0", env={"W": "0"})]})))
    with Bench() as bench:
        bench.start(scanner, domain="example.com")
        bench.wait_for("example.com/widget.marked", allocatable=1)
        options = bench.allocate("pod", "main", {"example.com/widget.marked": 1}).options
    assert dict(options.env) == {"W": "0", "MARK": "here"}
    assert dict(options.annotations) == {"marks": "+"}


async def test_calls_and_names_pass_through_several(caplog: pytest.LogCaptureFixture) -> None:
    """Each knows the type by its own name, each edits an answer of the plugin's own too."""
    plugin = Able(widget=widgets("w0", "w1"))
    with caplog.at_level(logging.INFO):
        outer = Marked(Marked(plugin, "in"), "out")
        async with scanned(outer) as served:
            assert [*served.tree] == ["widget.marked.marked"]
            kind = "widget.marked.marked"
            answer = await served.allocate("w1", device_type=kind)
            assert (answer.env, answer.annotations) == ({"OWN": "1"}, {"marks": "++"})
            assert await served.prefer("w0 w1", 1, device_type=kind) == ["w1"]
            server = served.server(kind)
            await server.pre_start_container(kd.PreStartContainerRequest(("w1",)))
            await Hooks(outer.abilities_of(kind)).on_type_added(kind)
    assert plugin.told[1:] == [kd.PreStartContainerRequest(("w1",)), "widget"]
    assert [each.message for each in caplog.records if "marks with" in each.message] == [
        "marks with 'out'",
        "marks with 'in'",
    ]
    assert [*layers(outer)] == [outer, outer.scanner]
    assert innermost(outer) is plugin


@pytest.mark.parametrize("plugin", [Widgets(widget=widgets("w0")), Able(widget=widgets("w0"))])
async def test_only_what_the_plugin_offers_is_offered(plugin: kd.Scanner) -> None:
    """So that a kubelet asks as often as before, and the quick answer stays quick."""
    direct, behind = Hooks(plugin), Hooks(kd.Middleware(plugin).abilities_of("widget"))
    assert behind.options == direct.options
    assert behind.offered == direct.offered
    assert behind.is_asked_to_allocate is direct.is_asked_to_allocate
    assert behind.name == direct.name


async def test_an_error_names_the_author_s_class() -> None:
    """Not a class of ours that stands before it."""

    class Wrong(Able):
        def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
            return None  # type: ignore[return-value]

    async with scanned(kd.Middleware(kd.Middleware(Wrong(widget=widgets("w0"))))) as served:
        with pytest.raises(kd.KubedevicesError, match=r"Wrong\.allocate\(\)"):
            await served.allocate("w0")


class _Ruled(RuledMiddleware[kd.Health]):
    """A rule is the health of every device; some moments have passed."""

    moments: tuple[float, ...] = ()
    looks = 0

    def change(self, tree: kd.DeviceTree, now: float) -> kd.DeviceTree:
        self.looks += 1
        if late := [each for each in self.moments if each > now]:
            self.look_again(min(late))
        passed = str(len(self.moments) - len(late))
        return kd.DeviceTree(
            {
                name: [
                    replace(each, health=self.rule_of(name) or each.health, env={"PASSED": passed})
                    for each in tree.devices(name).values()
                ]
                for name in tree
            }
        )


async def test_a_rule_changes_without_a_restart() -> None:
    """For every type, or for those that are named."""
    scanner = _Ruled(Widgets(widget=widgets("w0"), gadget=widgets("g0")), kd.Health.HEALTHY)
    async with scanned(scanner) as served:

        async def healths() -> list[str]:
            tree = await served.next_tree()
            return [each.health for name in tree for each in tree.devices(name).values()]

        scanner.use(kd.Health.UNHEALTHY)
        assert await healths() == ["Unhealthy", "Unhealthy"]
        await asyncio.to_thread(scanner.use, {"gadget": kd.Health.UNHEALTHY})
        assert await healths() == ["Healthy", "Unhealthy"]


def a_faulty() -> kd.Faulty:
    faulty = kd.Faulty(Widgets(), kd.FaultRule())
    faulty.set_health("*", kd.Health.UNHEALTHY)
    return faulty


@pytest.mark.parametrize(
    ("scanner", "rules", "devices"),
    [
        (_Ruled(Widgets(), kd.Health.HEALTHY), kd.Health.UNHEALTHY, widgets("w0")),
        (a_faulty(), kd.FaultRule(), widgets("w0")),
        (Repaired(Widgets()), False, []),
    ],
)
def test_new_rules_count_from_their_first_look_on(
    scanner: Any, rules: object, devices: list[kd.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop may look at once when another thread sets them."""
    tree, looks = kd.DeviceTree({"widget": devices}), list[kd.DeviceTree]()
    before = scanner.change(tree, 0.0)

    def look_again(at: float | None = None) -> None:
        if at is None:
            looks.append(scanner.change(tree, 0.0))

    monkeypatch.setattr(scanner, "look_again", look_again)
    scanner.use(rules)
    assert looks == [scanner.change(tree, 0.0)]
    assert looks != [before]


async def test_looks_come_at_the_requested_times() -> None:
    """Also two of them, also one that has passed; none comes without having been asked for."""
    scanner = _Ruled(Widgets(widget=widgets("w0")), {})
    now = asyncio.get_running_loop().time()
    scanner.moments = (now - 1, now + 0.05, now + 0.1)
    async with scanned(scanner) as served:
        while served.tree.devices("widget")["w0"].env["PASSED"] != "3":
            await served.next_tree()
        assert scanner.looks <= 3
        scanner.look_again(now - 5)
        scanner.moments = (*scanner.moments, now)
        await served.next_tree()


async def test_the_scan_ends_with_the_inner_one_and_with_what_runs_beside() -> None:
    """What runs beside may end early; its error is the plugin's."""

    class Beside(kd.Middleware):
        error: Exception | None = None

        async def run_beside(self) -> None:
            if self.error:
                raise self.error

    plugin = Widgets(widget=widgets("w0"))
    async with scanned(scanner := Beside(plugin)) as served:
        plugin.show(widget=widgets("w0", "w1"))
        await served.next_tree()
        assert served.ids() == ["w0", "w1"]
    scanner.error = OSError("no such watch")
    with pytest.raises(OSError, match="no such watch"):
        await scanner.scan(kd.Notifier())
    scanner.look_again()  # nobody scans any more: nothing happens


async def test_a_failed_scan_is_reported_with_the_authors_class(short_dir: Path) -> None:
    """However much stands before it."""

    class Broken(kd.Scanner):
        async def scan(self, notifier: kd.Notifier) -> None:
            raise OSError("no such bus")

    scanner = kd.Middleware(kd.Middleware(Broken()))
    with pytest.raises(ScanFailed, match=r"Broken failed: OSError: no such bus"):
        await kd.PluginRunner(scanner, domain="example.com", socket_dir=short_dir).run()


def test_a_middleware_needs_a_scanner() -> None:
    """The class instead of an object is the usual mistake."""
    with pytest.raises(UsageError, match="Middleware needs a Scanner object"):
        kd.Middleware(Widgets)  # type: ignore[arg-type]


class Preparing(Widgets, kd.ClaimPreparer):
    """Prepares claims; a claim can set a number. Takes devices out by a file."""

    @dataclass(frozen=True)
    class Parameters:
        number: int = 1

    parameters = Parameters
    cordon_file = Path("/state/maintenance.json")

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        del claimed

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        del claimed


async def test_what_is_known_of_a_plugin_is_known_behind_middleware() -> None:
    """The parameters of its claims, and the file by which `cordon` finds out who obeys."""
    plugin = Preparing(widget=widgets("w0"))
    direct = Hooks(plugin)
    behind = Hooks(kd.Middleware(kd.Middleware(plugin)).abilities_of("widget"))
    assert behind.parameters is direct.parameters is Preparing.Parameters
    assert behind.cordon_file == direct.cordon_file == plugin.cordon_file
