"""`python -m kubedevices`: the same as `kubedevices`, where no script was installed."""

import sys

from kubedevices.cli import main

if __name__ == "__main__":
    sys.exit(main())
