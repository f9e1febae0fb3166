"""Programs whose end is watched by `test_interpreter_exit`: run by a fresh interpreter, by the names of functions.

Each is how somebody's program ends, or a notebook's kernel. What they print on stdout is for the test; on stderr there
must be nothing. Several share one interpreter, because importing takes longer than all of them.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from deputy_mcp import (
    DeputyError,
    HttpServer,
    Limits,
    McpConnection,
    Permissions,
    RestartPolicy,
    StdioServer,
    ToolResult,
    UnavailableError,
)

OPTIONS: dict[str, Any] = {
    "permissions": Permissions.full(),
    "limits": Limits(shutdown_timeout_seconds=1),
    "restart": RestartPolicy(backoff_initial_seconds=0.01),
}


def connection(name: str = "a") -> McpConnection:
    """To one of the servers that the test gave."""
    # asyncio's debug mode complains of slow turns; a busy machine is no defect of ours.
    asyncio.get_event_loop().slow_callback_duration = 60
    entry = json.loads(sys.argv[2])[name]
    return McpConnection({name: HttpServer(**entry) if "url" in entry else StdioServer(**entry)}, **OPTIONS)


async def opened() -> McpConnection:
    return await connection().__aenter__()


async def called(c: McpConnection) -> "asyncio.Task[ToolResult]":
    """A call that is on its way and will not be answered."""
    await c.call_tool("a", "echo")
    before = c.status()["a"].bytes_out
    call = asyncio.create_task(c.call_tool("a", "hang"))
    while c.status()["a"].bytes_out == before:
        await asyncio.sleep(0)

    return call


def closed_in_its_block() -> None:
    async def main() -> None:
        async with connection() as c:
            print((await c.call_tool("a", "echo", {"value": 1})).text)

    asyncio.run(main())


def ended_by_asyncio_run_without_closing() -> None:
    async def main() -> None:
        c = await opened()
        print((await c.call_tool("a", "echo", {"value": 1})).text)

    asyncio.run(main())


def ended_by_asyncio_run_while_kept_in_a_global() -> None:
    async def main() -> None:
        globals()["kept"] = c = await opened()
        print((await c.call_tool("a", "echo", {"value": 1})).text)

    asyncio.run(main())


def ended_by_asyncio_run_in_the_middle_of_a_call() -> None:
    async def main() -> None:
        c = await opened()
        globals()["call"] = await called(c)
        print(1)

    asyncio.run(main())


def ended_by_asyncio_run_in_the_middle_of_the_start() -> None:
    async def main() -> None:
        c = connection("silent")
        globals()["opening"] = asyncio.create_task(c.__aenter__())
        while not c.status()["silent"].bytes_out:
            await asyncio.sleep(0)

        print(1)

    asyncio.run(main())


def ended_by_asyncio_run_in_the_first_turn_of_the_start() -> None:
    async def main() -> None:
        c = connection()
        globals()["opening"] = asyncio.create_task(c.__aenter__())
        while c.status()["a"].state != "starting":
            await asyncio.sleep(0)

        print(1)

    asyncio.run(main())


def ended_by_asyncio_run_with_a_generator_left_open() -> None:
    async def texts() -> AsyncIterator[str]:
        async with connection() as c:
            while True:
                yield (await c.call_tool("a", "echo", {"value": 1})).text

    async def main() -> None:
        globals()["kept"] = generator = texts()
        print(await anext(generator))

    asyncio.run(main())


def ended_by_asyncio_run_with_a_reader_of_events() -> None:
    async def main() -> None:
        c = await opened()

        async def read() -> None:
            async for _ in c.events():
                pass

        globals()["reader"] = asyncio.create_task(read())
        await asyncio.sleep(0)
        print((await c.call_tool("a", "echo", {"value": 1})).text)

    asyncio.run(main())


def cells_of_a_notebook() -> None:
    """Each cell is a turn of the same loop; between the turns it stands still."""
    with asyncio.Runner() as runner:
        c = runner.run(opened())
        print(runner.run(c.call_tool("a", "echo", {"value": 1})).text)
        gc.collect()
        print(runner.run(c.call_tool("a", "echo", {"value": 2})).text)
        runner.run(c.aclose())


def cells_of_a_notebook_never_closed() -> None:
    with asyncio.Runner() as runner:
        c = runner.run(opened())
        print(runner.run(c.call_tool("a", "echo", {"value": 1})).text)
        print(runner.run(c.call_tool("a", "echo", {"value": 2})).text)


def a_server_dies_between_two_cells() -> None:
    with asyncio.Runner() as runner:
        c = runner.run(opened())
        pid = c.status()["a"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        # Killed while the loop stands still: the next cell finds out, and its call may be the one that is hit.
        try:
            runner.run(c.call_tool("a", "echo", {"value": 1}))
        except DeputyError as error:
            print(error.code, file=sys.stdout)

        print(runner.run(c.call_tool("a", "echo", {"value": 2})).text)
        runner.run(c.aclose())


def interrupted_at_the_keyboard() -> None:
    async def main() -> None:
        async with connection() as c:
            call = await called(c)
            signal.raise_signal(signal.SIGINT)
            await call

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted")


def a_fresh_loop_for_each_connection() -> None:
    async def main() -> None:
        async with connection() as c:
            print((await c.call_tool("a", "echo", {"value": 1})).text)

    for _ in range(3):
        asyncio.run(main())


async def said_at_once(c: McpConnection, *verbs: str) -> None:
    """Every verb in the same turn of the loop; then the state in which that ended, and whether it can be left."""
    outcomes = await asyncio.gather(*(getattr(c, verb)("a") for verb in verbs), return_exceptions=True)
    odd = [o for o in outcomes if o is not None and not isinstance(o, list | UnavailableError)]
    await c.stop("a")
    state = c.status()["a"].state
    await c.start("a")
    print(*odd, state, c.status()["a"].state)


def cancelled_in_the_first_turn_of_the_start() -> None:
    async def main() -> None:
        c = connection()
        opening = asyncio.create_task(c.__aenter__())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        print(opening.cancelled(), c.status()["a"].state)

    asyncio.run(main())


def closed_in_the_first_turn_of_the_start() -> None:
    async def main() -> None:
        c = connection()
        opening = asyncio.create_task(c.__aenter__())
        await asyncio.sleep(0)
        await c.aclose()
        await asyncio.wait([opening])
        print(c.status()["a"].state)

    asyncio.run(main())


def stopped_in_the_first_turn_of_the_start() -> None:
    async def main() -> None:
        async with connection() as c:
            await c.stop("a")
            await said_at_once(c, "start", "stop")

    asyncio.run(main())


def killed_in_the_first_turn_of_the_start() -> None:
    async def main() -> None:
        async with connection() as c:
            await c.stop("a")
            await said_at_once(c, "start", "kill")

    asyncio.run(main())


def reloaded_in_the_first_turn_of_the_start() -> None:
    async def main() -> None:
        async with connection() as c:
            await c.stop("a")
            await said_at_once(c, "start", "reload")

    asyncio.run(main())


def contrary_verbs_at_once() -> None:
    async def main() -> None:
        async with connection() as c:
            await said_at_once(c, "start", "stop", "reload", "start", "kill", "reload", "stop")
            await said_at_once(c, "reload", "kill", "start", "reload")
            await c.stop("a")
            await said_at_once(c, "reload", "stop", "start", "kill", "reload", "start")
            await c.stop("a")
            await said_at_once(c, "reload", "reload", "reload", "reload", "reload")

    asyncio.run(main())


def made_and_never_entered() -> None:
    async def main() -> None:
        connection()
        print(1)

    asyncio.run(main())


if __name__ == "__main__":
    for program in sys.argv[1].split(","):
        globals()[program]()
        gc.collect()
        print(f"ends {program}", flush=True)
