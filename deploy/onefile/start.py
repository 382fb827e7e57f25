"""The start of the single file: as `kubedevices`, or as the Python of its own helper processes."""

import os
import runpy
import sys

# PyInstaller's loader sets LD_LIBRARY_PATH for the libraries in the file. Programs that kubedevices
# starts need the old value.
before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
os.environ.pop("LD_LIBRARY_PATH", None)
if before is not None:
    os.environ["LD_LIBRARY_PATH"] = before
# A second process of this file must unpack the file again: it may live longer than this process,
# which deletes its directory at its end.
os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"

arguments = [word for word in sys.argv[1:3] if word != "-P"]
if arguments[:1] == ["-m"]:
    # `kubedevices check` starts modules with `sys.executable -m`. Here sys.executable is this file.
    words = sys.argv[sys.argv.index("-m") + 1 :]
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
else:
    from kubedevices.cli import main

    sys.exit(main())
