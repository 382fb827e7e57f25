"""`python -m kubedevices.cli`: the same as `kubedevices`, where no script was installed."""

import sys

from kubedevices.cli import main

sys.exit(main())
