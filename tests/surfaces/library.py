"""A small server on the SDK's own `MCPServer`: tools of each kind, one resource, one prompt. Speaks stdio."""

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("library", version="1", log_level="ERROR")
books = ["Emma"]


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def list_books() -> str:
    """The books that are there."""
    return ", ".join(books)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=True))
def find_elsewhere(title: str) -> str:
    """Looks a book up in the world."""
    return f"{title} is elsewhere"


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False))
def shelve(title: str) -> str:
    """Puts one book on the shelf."""
    books.append(title)
    return f"{len(books)} books"


@server.tool()
def burn() -> str:
    """Declares no hints, so it counts as writing, destructive and open-world."""
    books.clear()
    return "burnt"


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def fall() -> str:
    """Always fails."""
    raise ValueError("it fell")


@server.resource("library://hours")
def hours() -> str:
    """When it is open."""
    return "nine to five"


@server.prompt()
def recommend(topic: str) -> str:
    """A prompt."""
    return f"Recommend a book on {topic}."


if __name__ == "__main__":
    server.run("stdio")
