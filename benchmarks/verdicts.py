"""What the defaults say of the tools of real servers: nothing that may write gets through, and reading is hardly asked.

Over `corpora/benign.jsonl`, each server vetted as a connection vets it. The sample of readers is printed, so that a
person can judge which of those that are asked are asked without need.
"""

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

from deputy_mcp._core.catalog import ToolFacts, vet_listing
from deputy_mcp._core.permissions import Allow, Ask, Permissions

CORPUS = Path(__file__).parent / "corpora" / "benign.jsonl"
MEMBERS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
SAMPLE, SEED = 50, 2026
VERBS = ("send", "write", "delete", "create", "remove", "update")
"""An oracle of its own: plain words in a name, not the library's list."""


def servers() -> dict[str, list[dict[str, Any]]]:
    """The raw tools by source, as they stand in a listing."""
    found: dict[str, list[dict[str, Any]]] = {}
    with CORPUS.open(encoding="utf-8") as file:
        for line in map(json.loads, file):
            raw = {key: line[key] for key in MEMBERS if line.get(key) is not None}
            found.setdefault(line["source"], []).append({"inputSchema": {"type": "object"}} | raw)

    return found


def _words(name: str) -> list[str]:
    return re.split(r"[^a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower().strip("_"))


def _read_only_entries() -> list[dict[str, Any]]:
    entries = [raw for offered in servers().values() for raw in offered]
    return [raw for raw in entries if (raw.get("annotations") or {}).get("readOnlyHint") is True][:100]


def vetted(offered: dict[str, list[dict[str, Any]]] | None = None) -> list[ToolFacts]:
    """Every well-formed tool, judged."""
    tools: list[ToolFacts] = []
    for source, entries in (offered or servers()).items():
        vetting = vet_listing(
            source,
            entries,
            allowlist=None,
            pins=None,
            host_annotations={},
            trusted=True,
            max_description_bytes=16 * 1024,
        )
        tools.extend(vetting.tools.values())

    return tools


async def run() -> list[tuple[str, str, bool]]:
    """The figures of issue 4, line 3."""
    rows: list[tuple[str, str, bool]] = []
    tools = vetted()
    # The web is granted: what is asked then is asked for what a tool does, not for where it reaches.
    asking = Permissions(web=True, write="ask")
    rows.append((f"tools judged, of {len(servers())} servers", str(len(tools)), len(tools) > 1_900))
    through = [one for one in tools if not one.effects.read_only and isinstance(asking.decide(one), Allow)]
    rows.append(("not positively read-only and let through", str(len(through)), not through))
    denied = Counter(type(Permissions().decide(one)).__name__ for one in tools if not one.effects.read_only)
    rows.append(("the same under the floor", dict(denied).__repr__(), set(denied) <= {"Deny"}))

    reading = [one for one in tools if one.effects.read_only]
    acting = [one for one in reading if _words(one.tool)[0] in VERBS]
    let = [one for one in acting if isinstance(asking.decide(one), Allow)]
    rows.append(
        ("claim to read, named as senders, writers, deleters", f"{len(acting)}, {len(let)} let through", not let)
    )
    # There are none in this half of the corpus: so every reader once more, under such a name.
    posing = [raw | {"name": f"{verb}_{raw['name']}"[:60]} for verb in VERBS for raw in _read_only_entries()]
    let = [one for one in vetted({"posing": posing}) if isinstance(asking.decide(one), Allow)]
    rows.append(("the readers under such names, let through", f"{len(let)} of {len(posing)}", not let))

    # And the writers as readers under a name that says nothing: what is left is the description's first verb.
    named = [one.raw for one in tools if not one.effects.read_only and _words(one.tool)[0] in VERBS]
    hiding = [raw | {"name": f"t{i}", "annotations": {"readOnlyHint": True}} for i, raw in enumerate(named)]
    let = [one for one in vetted({"hiding": hiding}) if isinstance(asking.decide(one), Allow)]
    share = 100 - 100 * len(let) / len(hiding)
    rows.append((f"writers told by their description alone, of {len(hiding)}", f"{share:.0f} %", share >= 85))

    asked = [one for one in reading if isinstance(asking.decide(one), Ask)]
    why = Counter(finding.code for one in asked for finding in one.findings if finding.severity == "flag")
    rows.append(("claim to read and are asked", f"{len(asked)} of {len(reading)}: {dict(why)}", True))
    sample = random.Random(SEED).sample(reading, SAMPLE)
    asked_of_sample = [one for one in sample if isinstance(asking.decide(one), Ask)]
    share = 100 * len(asked_of_sample) / SAMPLE
    rows.append((f"asked without need, at most, of a sample of {SAMPLE}", f"{share:.0f} %", share < 5))
    for one in sample:
        verdict = type(asking.decide(one)).__name__.lower()
        rows.append((f"  {one.tool[:40]}", f"{verdict}: {' '.join(one.description.split())[:90]}", True))

    return rows
