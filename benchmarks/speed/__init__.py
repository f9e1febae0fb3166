"""How quick a governed call is, beside the bare SDK's client, the peers, and the floor below which nothing goes.

`python -m benchmarks.speed` prints tables; `make bench` keeps them and draws `docs/explanation/speed.md`.

- `clients` are the columns, each in a process and, where versions may clash, an environment of its own; `drivers` hold
  one file per client; `rounds` has them measured in turn, one at a time;
- `works`, `starting` and `listings` are what they do; `parts` and `lives` measure what only we have;
- `figures` is pure: medians, spreads, ratios paired within a round, verdicts; `table`, `page` and `plot` show them, and
  `results` keeps them.

Ratios are to be read, not microseconds: the machine is whatever it is.
"""
