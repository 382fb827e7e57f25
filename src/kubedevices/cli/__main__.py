"""`python -m kubedevices.cli`: the same as the installed command `kubedevices`."""

import sys

from kubedevices.cli import main

sys.exit(main())
