"""`python -m deputy_mcp` is the command `deputy-mcp`."""

import sys

from deputy_mcp.cli import main

if __name__ == "__main__":
    sys.exit(main())
