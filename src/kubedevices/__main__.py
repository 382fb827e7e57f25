"""`python -m kubedevices`: the same as the installed command `kubedevices`."""

import sys

from kubedevices.cli import main

if __name__ == "__main__":
    sys.exit(main())
