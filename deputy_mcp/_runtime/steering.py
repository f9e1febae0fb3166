"""Starting and ending one server on request: leave its task a word, and wait for what comes of it."""

from deputy_mcp._core.errors import StartError, UnavailableError
from deputy_mcp._core.lifecycle import Event, ServerState
from deputy_mcp._runtime.server import ServerTask


async def reload(task: ServerTask, *, repin: bool) -> None:
    """Restart on purpose; return when it is READY again. Raises `UnavailableError`."""
    before = task.attempts
    while not task.life.can(Event.RELOAD):
        if task.state is ServerState.CLOSING:
            await task.wait_until(lambda: task.state is not ServerState.CLOSING)
        elif task.state is ServerState.DORMANT:
            break
        else:
            raise task.unavailable() or UnavailableError(f"server {task.name!r} cannot be reloaded", server=task.name)

    task.load += 1
    if repin:
        task.listing.pins = None

    task.step(Event.RELOAD)
    # A running server first goes down, which is an attempt's end too.
    await task.wait_until(lambda: task.attempts > before and task.state is not ServerState.STARTING)
    await wait_up(task)


async def bring_up(task: ServerTask, event: Event) -> None:
    """Start a server that is down, or release one, and return when it is READY. Raises `UnavailableError`."""
    if task.state is ServerState.CLOSING:
        await task.wait_until(lambda: task.state is not ServerState.CLOSING)

    if task.state is ServerState.QUARANTINED and event is not Event.RELEASED:
        error = task.unavailable()
        assert error is not None
        raise error

    before = task.attempts
    if task.step(event):
        await task.wait_attempt(before)

    await wait_up(task)


async def wait_up(task: ServerTask) -> None:
    """Return when the attempt under way led to READY; raise why it did not."""
    going_up = (ServerState.STARTING, ServerState.VETTING, ServerState.CLOSING)
    await task.wait_until(lambda: task.state not in going_up)
    if task.state is ServerState.READY:
        return

    raise task.unavailable() or start_error(task)


async def wait_down(task: ServerTask) -> None:
    """Return when nothing of it is left."""
    await task.wait_until(lambda: task.state is not ServerState.CLOSING)


def start_error(task: ServerTask, what: str = "server") -> StartError:
    """Why a server that is on its way is not READY yet."""
    why = task.last_error or str(task.state)
    return StartError(
        f"{what} {task.name!r} did not start: {why}",
        server=task.name,
        state=str(task.state),
        reason=why,
        stderr_tail=task.stderr_tail,
    )
