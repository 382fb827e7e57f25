"""The checkpoint with the prepared claims."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.dra.claims import DeviceGroup, Result
from kubedevices.dra.metadata import RequestMetadata
from kubedevices.dra.prepared_file import PreparedClaim, PreparedClaims, PreparedDevice
from kubedevices.errors import PreparedUnwritable
from kubedevices.values.allocation import ClaimReference


def claim(uid: str) -> PreparedClaim:
    device = PreparedDevice(Result("gpu", "node1", "gpu-0", "s1", True), (f"a.com/claim={uid}",))
    reference = ClaimReference("default", uid, "one")
    group = DeviceGroup("gpu", "card", ("gpu-0",), {"a": [1]})
    return PreparedClaim(reference, "boot-1", True, (device,), "{}", (group,))


def test_a_prepared_claim_is_read_back_by_the_next_process(tmp_path: Path) -> None:
    """With all its fields."""
    path = tmp_path / "made" / "prepared.json"
    claims = PreparedClaims(path)
    claims.put(claim("1"))
    claims.put(claim("2"))
    claims.remove("1")
    claims.remove("unknown")
    again, is_whole = PreparedClaims.read(path)
    assert is_whole
    assert list(again) == [claim("2")]
    assert again.get("2") == claim("2")


def test_a_checkpoint_with_metadata_has_its_own_version(tmp_path: Path) -> None:
    """A program that does not know metadata must not overwrite the file."""
    path = tmp_path / "prepared.json"
    file = RequestMetadata("gpu", "/var/run/there.json", "{}")
    claims = PreparedClaims(path, [claim("1")])
    claims.put(replace(claim("2"), metadata=(file,)))
    assert json.loads(path.read_text())["version"] == 2
    again, _ = PreparedClaims.read(path)
    assert list(again) == list(claims)
    again.remove("2")
    assert json.loads(path.read_text())["version"] == 1


def test_without_a_file_there_are_no_claims(tmp_path: Path) -> None:
    """At the first start."""
    claims, is_whole = PreparedClaims.read(tmp_path / "prepared.json")
    assert is_whole
    assert len(claims) == 0


def test_a_truncated_file_is_logged_and_read_as_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver starts nevertheless."""
    path = tmp_path / "prepared.json"
    PreparedClaims(path).put(claim("1"))
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        caplog.clear()
        claims, is_whole = PreparedClaims.read(path)
        assert (len(claims), is_whole) == (0, False), size
        assert [each.levelno for each in caplog.records] == [logging.ERROR]


def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    """A claim with a wrong device would be worse than no claim."""
    path = tmp_path / "prepared.json"
    PreparedClaims(path).put(claim("1"))
    path.write_bytes(path.read_bytes().replace(b"gpu-0", b"gpu-1"))
    assert PreparedClaims.read(path)[1] is False


def test_a_file_of_a_newer_version_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a downgrade."""
    path = tmp_path / "prepared.json"
    path.write_text(json.dumps({"version": 9, "claims": {}}))
    assert PreparedClaims.read(path)[1] is False
    assert "version 9" in caplog.text


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    """The claims in memory stay equal to the claims on disk."""
    path = tmp_path / "ours/prepared.json"
    claims = PreparedClaims(path)
    claims.put(claim("1"))
    path.parent.rename(tmp_path / "moved")
    path.parent.symlink_to("moved")
    with pytest.raises(PreparedUnwritable, match=r"prepared\.json"):
        claims.put(claim("2"))
    with pytest.raises(PreparedUnwritable, match=r"prepared\.json"):
        claims.remove("1")
    assert list(claims) == [claim("1")]
