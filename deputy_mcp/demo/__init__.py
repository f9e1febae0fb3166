"""The main job on real servers, as `deputy-mcp demo` shows it."""
