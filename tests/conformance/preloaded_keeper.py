"""A keeper that has the misbehaving plugins of this folder loaded, and forks instead of executing.

A check of a mutant starts some thirty plugin processes. Loading Python and grpcio for each of them
took most of the time of the whole test suite. Any other command is executed as ever.
"""

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from kubedevices.conformance.keeper import KeeperProcess, leave_keeper, main
from tests.conformance import mutant


class PreloadedKeeper(KeeperProcess):
    """Runs a mutant in the forked child itself."""

    def _become(self, request: dict[str, Any], problems: int) -> None:
        argv = request["argv"]
        if argv[:2] != [sys.executable, mutant.__file__]:
            super()._become(request, problems)
        code = 1
        try:
            leave_keeper(request)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the keeper's, which execution would close
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.clear()
            os.environ.update(request["env"])
            sys.argv = argv[1:]
            code = mutant.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), PreloadedKeeper)
