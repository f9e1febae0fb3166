"""The soak: twenty servers that misbehave by chance, concurrent calls, and the books compared at the end.

`python -m tests.soak --seconds 600 --seed 7`, or a short run of the same in `tests/processes/test_soak.py`. A seed
fixes who the servers are, what every caller asks for and what is done to whom; when things meet is the machine's. It
is no load test: what it promises is that a call ends once, in time, with its own result or an honest error, and that
nothing is left.

    behaviours  what one call can make a server do, as scripts of `deputy_mcp.testing`
    plan        which servers there are, from the seed
    keeping     HTTP servers as processes of their own, killed and started again
    books       our book of calls, the servers' ledgers, and the comparison
    journal     the connection's own journal, as a third book
    pulse       whether the event loop turns
    load        callers, havoc, and those who mend
    run         all of it in order; the report
"""

import sys
from pathlib import Path

# The witnesses of "nothing left" are shared with the other tests, which import them by this name.
if (_servers := str(Path(__file__).parents[1] / "servers")) not in sys.path:
    sys.path.insert(0, _servers)
