"""The same misbehaving servers before three clients: ours, the bare SDK's and fastmcp's.

`python -m benchmarks.compare` prints a table of which gives the right value, hangs, dies or lies; with `--write` it
becomes `docs/explanation/compared.md`.

- `situations` are data: what the server does, what is done with it, what the right value is and where that stands;
- `drivers` hold one file per client, each written as that client's documentation says, and the part that plays a
  situation inside a process of its own;
- `runner` starts servers and processes and bounds both; `judging` is pure and finds the word; `table` shows it.

Not a benchmark of speed, and not one of governance: permissions, pins and cleaned texts are not compared.
"""
