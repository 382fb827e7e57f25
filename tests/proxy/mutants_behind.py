"""What becomes of each mutant of the checks behind the proxy.

Most mistakes in answers are the plugin's own business and arrive as they are. `repair` and `hold`
heal what they are for. Much is healed because the kubelet never meets the plugin: the proxy has the
connection to the kubelet, and one connection with one stream to the plugin.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Becomes:
    """Why, and what is still found: ID of a check → severity. None: all that the mutant breaks.

    What is not found any more must have passed, unless it `is_hidden`: no check can look at it.
    Of what `is_unsteady` only the checks that it breaks are compared.
    """

    why: str
    left: Mapping[str, str] | None = field(default_factory=dict)
    is_refused: bool = False
    is_hidden: bool = False
    is_unsteady: bool = False
    passed_over: tuple[str, ...] = ()

    def found(self, breaks: Mapping[str, str]) -> Mapping[str, str]:
        """Return what is found of a mutant that breaks so much."""
        return breaks if self.left is None else self.left


SAME = Becomes("the plugin's own business", None)
REFUSED = Becomes("refused inside, in the kubelet's words", is_refused=True)
TOO_LARGE = Becomes("not served until the list fits; the log says so", is_refused=True)
BACK_IN_TIME = Becomes(
    "hold: the plugin is back before anybody sees that it was away",
    # The one that holds stays, and lets calls wait, when the plugin is stopped for good.
    passed_over=("life.stop-in-allocate",),
)

REGISTERS = "the proxy registers with the kubelet, and the plugin once with the proxy"
ONE_STREAM = "the plugin has one stream, which lasts; the proxy serves all others"
OWN_HTTP = "the kubelet meets the proxy's HTTP/2 server"
NOT_ASKED = "the proxy offers, asks and tells what the plugin's options say"
SOCKET_REMOVED = "the socket outside is the proxy's"
REGISTERED_INSIDE = "it never waits for a kubelet: it is registered with the proxy"
LATER = "repair waits a second for the real list, and this takes longer"
ABSENT = "for the proxy a plugin without a stream is away, as for a kubelet"
NEVER_TOLD = "nobody hears of the change, so no check can see one"
NEVER_TOLD_NO = "the proxy is what a kubelet refuses"
IN_AND_OUT = "taken out and let in again, as a kubelet 1.36 does"


def repaired(what: str) -> Becomes:
    """Return what becomes of a mistake that repair makes good."""
    return Becomes(f"repair: {what}")


BEHIND: dict[str, Becomes] = {
    "akri-never-registers-again": Becomes(REGISTERS),
    "allocate-fails": SAME,
    "allocate-hangs": SAME,
    "allocate-says-nothing": SAME,
    "answers-mixed-up": SAME,
    "any-method-ok": Becomes(OWN_HTTP),
    "authority-checked": REFUSED,
    "bare-mixes-containers-up": Becomes(
        REGISTERS, {"allocate.per-container": "warn", "allocate.empty-ids": "note"}
    ),
    "bare-registers-once": Becomes(REGISTERS, {"allocate.empty-ids": "note"}),
    "broken-connection-hangs": Becomes(OWN_HTTP),
    "broken-connection-panics": Becomes(OWN_HTTP),
    "cdi-invalid-name": SAME,
    "cdi-undefined-device": SAME,
    "cdi-unknown-key": SAME,
    "cdi-version-too-high": SAME,
    "cdi-version-too-low": SAME,
    "counts-allocations": SAME,
    "deaf-while-waiting": Becomes(REGISTERS),
    "dies-late-of-a-lost-stream": BACK_IN_TIME,
    "double-id": repaired("doubled IDs"),
    "dpm-withdrawn-resource-served": SAME,
    "empty-id": repaired("an empty ID"),
    "empty-ids-accepted": SAME,
    "endpoint-with-directory": REFUSED,
    "exits-without-a-stream": Becomes(ONE_STREAM),
    "first-list-empty": repaired("an empty first list"),
    "first-list-empty-for-long": Becomes(LATER, {"list.complete": "warn"}),
    "first-list-late": Becomes(ONE_STREAM),
    "flaps": SAME,
    "foreign-preference": repaired("a preference of others"),
    "gce": Becomes(REGISTERS, {"life.stop-code": "warn", "allocate.empty-ids": "note"}),
    "gce-absent-kubelet-never": Becomes(REGISTERS),
    "gce-dies-of-a-refused-dial": Becomes(REGISTERS),
    "gce-no-sigterm-handler": Becomes(SOCKET_REMOVED, {"life.stop-code": "warn"}),
    "generic-change-after-restart-lost": Becomes(ONE_STREAM),
    "generic-device-plugin": Becomes(REGISTERS, {"allocate.empty-ids": "note"}),
    "generic-empty-preference": Becomes(NOT_ASKED),
    "generic-one-spec-per-replica": SAME,
    "generic-only-own-socket-watched": Becomes(REGISTERS),
    "generic-registers-late": Becomes(REGISTERS),
    "generic-starts-in-one-second": BACK_IN_TIME,
    "generic-streams-share-a-queue": Becomes(ONE_STREAM),
    "gives-up-a-dead-kubelet": Becomes(REGISTERS),
    "gives-up-waiting": Becomes(REGISTERS),
    "hang-up-keeps-lock": SAME,
    "hangs-after-a-lost-stream": Becomes(ONE_STREAM),
    "impatient": Becomes(REGISTERS),
    "intel-dead-stream-takes-update": Becomes(ONE_STREAM),
    "intel-empty-list-first": repaired("an empty first list"),
    "intel-exits-when-wiped": Becomes(SOCKET_REMOVED),
    "intel-exits-without-kubelet": Becomes(REGISTERS),
    "intel-ignores-must-include": repaired("a preference without what must be"),
    "intel-notify-twice-forgets": SAME,
    "intel-order-of-ids-matters": SAME,
    "intel-panics-after-a-restart": Becomes(ONE_STREAM),
    "intel-stops-serving-at-a-change": Becomes(ONE_STREAM),
    "invalid-annotation-key": SAME,
    "invalid-resource-name": REFUSED,
    "kubevirt-one-response": SAME,
    "kubevirt-options-panic": REFUSED,
    "kubevirt-panics-at-restart": Becomes(REGISTERS),
    "leaks-descriptors": Becomes(ONE_STREAM),
    "leaks-memory": Becomes(ONE_STREAM),
    "long-id": SAME,
    "lower-case-health": repaired("health words"),
    "missing-host-path": SAME,
    "needs-its-own-file": Becomes(REGISTERS),
    "never-after-a-long-absence": Becomes(REGISTERS),
    "never-after-a-refused-dial": Becomes(REGISTERS),
    "never-registers": REFUSED,
    "no-options": repaired("missing options"),
    "numa-node-twice": SAME,
    "numa-unknown-node": SAME,
    "nvidia-exit-unlinks-successor": Becomes(REGISTERS),
    "nvidia-never-recovers": SAME,
    "nvidia-one-replica-unhealthy": SAME,
    "nvidia-own-socket-not-watched": Becomes(REGISTERS),
    "nvidia-registers-by-a-timer": Becomes(REGISTERS),
    "old-version": REFUSED,
    "one-greeting-at-a-time": Becomes(OWN_HTTP),
    "one-place-in-two-ways": repaired("doubled paths"),
    "one-replica-unhealthy-for-one-stream": Becomes(ONE_STREAM, {"list.replicas": "warn"}),
    "options-differ": Becomes(NOT_ASKED),
    "order-at-random": Becomes(ONE_STREAM),
    "panics-without-its-socket": Becomes(SOCKET_REMOVED),
    "permission-x": SAME,
    "ping-unanswered": Becomes(OWN_HTTP),
    "pre-start-any-id": SAME,
    "pre-start-fails": SAME,
    "pre-start-not-offered": Becomes(NOT_ASKED),
    "pre-start-slow": SAME,
    "preference-fails": repaired("an error of GetPreferredAllocation"),
    "prefers-too-few": repaired("a preference of too few"),
    "race-in-allocate": SAME,
    "refusal-exits-0": Becomes(REGISTERS),
    "refusal-ignored": Becomes(REGISTERS),
    "refusal-storm": Becomes(REGISTERS),
    "registers-again-and-again": Becomes(REGISTERS),
    "registers-first": Becomes(REGISTERS),
    "registers-twice-after-a-wait": Becomes(REGISTERED_INSIDE),
    "relative-path": repaired("relative paths"),
    "responses-swapped": SAME,
    "retries-without-socket": Becomes(REGISTERS),
    "rocm": Becomes(REGISTERS, {"allocate.unknown-id": "fail", "allocate.empty-ids": "note"}),
    "rocm-any-stream-end-exits": Becomes(ONE_STREAM),
    "rocm-cancelled-stream-exits": BACK_IN_TIME,
    "rocm-leaves-socket": Becomes(SOCKET_REMOVED),
    "rocm-numa-minus-one": repaired("NUMA -1"),
    "rocm-resends": repaired("identical lists"),
    "rocm-unknown-id-accepted": SAME,
    "second-stream-short": Becomes(ONE_STREAM),
    "serves-after-register": REFUSED,
    "serves-elsewhere": REFUSED,
    "simple-dash-in-env-name": SAME,
    "simple-device-plugin": Becomes(
        REGISTERS,
        {
            "registration.stale-socket": "warn",
            "registration.same-second": "warn",
            "allocate.env-names": "warn",
            "allocate.empty-ids": "note",
        },
    ),
    "simple-stale-socket-panic": BACK_IN_TIME,
    "slow-reader-blocks": Becomes(ONE_STREAM),
    "sriov-leaks-threads": Becomes(ONE_STREAM),
    "stale-socket-never": SAME,
    "start-race-exits": Becomes(REGISTERS),
    "stop-in-allocate-panics": SAME,
    "stopped-by-its-own-file": Becomes(REGISTERS),
    "stops-slowly": Becomes(
        REGISTERED_INSIDE, {"life.stop-time": "warn", "life.stop-while-waiting": "warn"}
    ),
    "stops-with-143": SAME,
    "stream-end-ignored": Becomes(REGISTERS),
    "stream-ends": Becomes(ABSENT, {"list.stays-open": "fail"}, is_unsteady=True),
    "tells-no-open-stream": Becomes(NEVER_TOLD, is_hidden=True),
    "ten-workers": Becomes(ONE_STREAM),
    "too-large-preference": SAME,
    "two-files-in-one-place": repaired("doubled paths"),
    "two-instances-yield": SAME,
    "unhealthy-id-accepted": SAME,
    "unknown-id-crash": BACK_IN_TIME,
    "volcano-list-too-large": TOO_LARGE,
    "waits-for-a-stream": Becomes(ONE_STREAM),
    "watcher-notify-error": Becomes(IN_AND_OUT, is_hidden=True, is_unsteady=True),
    "watcher-refused-crash": Becomes(NEVER_TOLD_NO, is_hidden=True),
    "watcher-without-version": REFUSED,
    "watcher-wrong-type": REFUSED,
}

HELD = {name for name, each in BEHIND.items() if each is BACK_IN_TIME}

NEVER_REPAIRED = {"first-list-empty", "intel-empty-list-first", "rocm-resends"}
"""Gone without repair, too: the kubelet gets the newest list, and never the same list again."""

REPAIRED = {
    name: REFUSED if name == "no-options" else SAME
    for name, each in BEHIND.items()
    if each.why.startswith("repair: ")
}
"""What becomes of them with `repair: off`."""
