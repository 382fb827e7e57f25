"""Where the single file starts: as `kubedevices`, or as the Python of its own helper processes."""

import os
import runpy
import sys

# PyInstaller's loader sets it for our libraries. Programs that we start need their own.
before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
os.environ.pop("LD_LIBRARY_PATH", None)
if before is not None:
    os.environ["LD_LIBRARY_PATH"] = before
# A process of this file that we start unpacks it again: it may outlive us and what we unpacked.
os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"

arguments = [word for word in sys.argv[1:3] if word != "-P"]
if arguments[:1] == ["-m"]:
    # `kubedevices check` starts modules of ours with sys.executable, which is this file.
    words = sys.argv[sys.argv.index("-m") + 1 :]
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
else:
    from kubedevices.cli import main

    sys.exit(main())
