"""The rule for state directories: nobody but this user and root may change them."""

import os
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk
from kubedevices.host.private_directory import check_private
from tests.host_needs import needs

ME, ROOT, STRANGER, OUR_GROUP = 1000, 0, 1001, 2000


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ME)
    monkeypatch.setattr(os, "getegid", lambda: ME)
    monkeypatch.setattr(os, "getgroups", lambda: [OUR_GROUP])


def made(path: Path, uid: int, gid: int, mode: int) -> Path:
    path.mkdir()
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("uid", "gid", "mode"),
    [
        (ME, ME, 0o700),
        (ME, ME, 0o755),
        (ROOT, ROOT, 0o755),
        (ROOT, OUR_GROUP, 0o2770),  # a volume with fsGroup
        (ROOT, OUR_GROUP, 0o2775),
    ],
)
@needs("root")
@pytest.mark.usefixtures("as_user")
def test_what_a_user_may_use(tmp_path: Path, uid: int, gid: int, mode: int) -> None:
    """Also through a link of root, as systemd makes one for a dynamic user."""
    directory = made(tmp_path / "state", uid, gid, mode)
    check_private(directory)
    (tmp_path / "link").symlink_to(directory)
    check_private(tmp_path / "link")


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "reason"),
    [
        (STRANGER, ME, 0o700, f"belongs to user {STRANGER}"),
        (ME, ME, 0o777, "chmod go-w"),
        (ME, ME, 0o1777, "chmod go-w"),
        (ME, OUR_GROUP, 0o770, "chmod go-w"),
        (ROOT, STRANGER, 0o770, "chmod go-w"),
        (ROOT, OUR_GROUP, 0o777, "chmod go-w"),
    ],
)
@needs("root")
@pytest.mark.usefixtures("as_user")
def test_what_a_user_may_not_use(
    tmp_path: Path, uid: int, gid: int, mode: int, reason: str
) -> None:
    """The error says what to do."""
    with pytest.raises(CannotAsk, match=reason):
        check_private(made(tmp_path / "state", uid, gid, mode))


@needs("root")
def test_root_uses_no_directory_and_no_link_of_a_user(tmp_path: Path) -> None:
    """A user could make /tmp/NAME before root does."""
    with pytest.raises(CannotAsk, match=f"directory .* belongs to user {STRANGER}"):
        check_private(made(tmp_path / "theirs", STRANGER, STRANGER, 0o755))
    with pytest.raises(CannotAsk, match="chmod go-w"):
        check_private(made(tmp_path / "group", ROOT, ROOT, 0o775))
    check_private(made(tmp_path / "mine", ROOT, ROOT, 0o755))
    (tmp_path / "link").symlink_to("mine")
    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(CannotAsk, match=f"link .* belongs to user {STRANGER}"):
        check_private(tmp_path / "link")


def test_a_missing_directory_is_no_error(tmp_path: Path) -> None:
    """It will be created for this user only."""
    check_private(tmp_path / "missing")
