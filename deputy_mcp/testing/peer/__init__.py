"""The child process of a scripted server: the standard library and nothing else, so that it is up in some 40 ms.

It runs outside this package (`scripted` puts this folder's parent on the child's path and imports `peer`), hence it
imports nothing of `deputy_mcp`, and only by relative names. `engine` plays a script over any transport; `stdio` and
`web` are the transports.
"""
