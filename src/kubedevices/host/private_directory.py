"""Which state directories are safe: only this user and root may change them. Blocking.

A state directory has the pods of a node and the socket for commands. Whoever can write there can
lead root to other files and give commands to it. The rule is that of ssh for its keys.
"""

import os
import stat
from pathlib import Path

from kubedevices.errors import CannotAsk


def check_private(directory: Path) -> None:
    """Raise `CannotAsk` if another user than this one and root can change `directory`.

    A missing directory is created later, for this user only. Allowed are:

    * a directory of this user or of root that nobody else may write to, in any parent, such as
      `/tmp` with its sticky bit;
    * a link of this user or of root to it: systemd makes one for `DynamicUser=`;
    * for a process without root, a directory of root that one of its groups may write to:
      Kubernetes gives volumes this owner for `fsGroup`.
    """
    try:
        link, found = os.lstat(directory), os.stat(directory)  # noqa: PTH116  the same call for both
    except OSError:
        return  # it does not exist, or its use will fail with a clear error
    me = os.geteuid()
    for each in (link, found):
        if each.st_uid not in (0, me):
            kind = "link" if stat.S_ISLNK(each.st_mode) else "directory"
            raise CannotAsk(
                f"the state {kind} {directory} belongs to user {each.st_uid}, who could change "
                f"what user {me} does: choose another --state-dir, or make it yours with chown"
            )
    mode = found.st_mode
    is_shared = me != 0 and found.st_uid == 0 and found.st_gid in (os.getegid(), *os.getgroups())
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not is_shared):
        raise CannotAsk(
            f"other users may write to the state directory {directory}: chmod go-w {directory}, "
            "or choose another --state-dir"
        )
