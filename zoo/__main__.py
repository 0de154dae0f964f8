"""``python -m zoo NAME``."""

import sys

from zoo import main

sys.exit(main(sys.argv[1:]))
