"""Systemd units without a systemd: `tests.stories.test_units_under_systemd` has one."""

import pytest

from kubedevices.manifests.units import node_unit, plugin_unit


@pytest.mark.parametrize(
    ("arguments", "is_reloaded"),
    [
        (("expose",), True),
        (("proxy", "--config", "/etc/proxy.yaml"), True),
        (("simulate", "--preset", "proxy"), False),
        (("run", "expose", "--domain", "example.com"), False),
    ],
)
def test_only_plugins_that_read_their_file_again_can_be_reloaded(
    arguments: tuple[str, ...], is_reloaded: bool
) -> None:
    """`systemctl reload` would end another plugin: SIGHUP means so."""
    lines = plugin_unit("/bin/kd", arguments, {}).splitlines()
    assert ("ExecReload=/bin/kill -HUP $MAINPID" in lines) is is_reloaded
    assert f"ExecStart=/bin/kd {' '.join(arguments)}" in lines


def test_a_node_keeps_its_state_in_its_own_directory() -> None:
    """Nobody else may read which pods hold which devices."""
    lines = node_unit("/bin/kd").splitlines()
    service = lines[lines.index("[Service]") : lines.index("[Install]")]
    assert service[2].startswith("ExecStart=/bin/kd node ")
    for each in ("Restart=always", "StateDirectory=kubedevices", "StateDirectoryMode=0700"):
        assert each in service
