"""What checking a value against a JSON Schema would cost, counted before it is tried.

Not a validator: nothing here decides whether a value fits. The rules, each measured against jsonschema-rs 0.61:

- Whatever a server sends is counted in loops, never by recursion, and counting stops at its limit.
- The engine holds the interpreter while it works, so no timeout in this process can stop it. The count must come first.
- `$ref` doubling is counted with every reference expanded, each definition once. A recursive schema is followed as
  deep as the instance goes: `{"properties": {"a": {"allOf": [R, R]}}}` costs 2**depth, which no count of the schema
  alone can see.
- The estimate may be too high (the check then moves to a process of its own); it must not be too low.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from deputy_mcp._core.schema_patterns import CAP, weigh_pattern
from deputy_mcp._core.schema_references import find_anchors, follow_reference, is_text_list, mend
from deputy_mcp._core.schema_values import NotPlainError, TooLargeError, is_wide, measure, plain_copy

JsonSchema = Mapping[str, Any] | bool
"""A schema as it came: an object, or `true`/`false`."""

GRAPH_VALUES = 20_000
"""Schemas of more values are not analysed and never compiled in the loop (10,000 definitions compile in 0.15 s)."""
GRAPH_TEXT = 1_000_000
"""The same for characters of text; long references are read over and over."""
MAX_CHAIN = 500
"""References in a row. Compiling is quadratic in them: 1,000 take 14 ms, 10,000 take 0.4 s."""
MAX_COMPILE_STATES = 20_000
"""Regex states that are compiled in the loop, all patterns together; about 20 ms."""
MAX_STEPS = 20_000
"""Subschemas times levels that one cost count may visit; past it the cost is unknown. About 0.15 s, once a schema."""
EMPTY_PATTERN_STATES = 50
"""What the smallest pattern costs to compile, in states."""
UNEVALUATED_FACTOR = 3
"""`unevaluated*` evaluates its siblings again, at each nesting: measured at 2.6 a level (20 levels took 10 s)."""
WIDE_INTEGER_SIZE = 100
"""Comparing with an integer beyond 64 bits takes up to a microsecond."""

_HERE_ONE = frozenset({"not", "if", "then", "else"})
_HERE_MANY = frozenset({"allOf", "anyOf", "oneOf"})
_HERE_NAMED = frozenset({"dependentSchemas", "dependencies"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_EACH_PROPERTY = frozenset({"additionalProperties", "propertyNames", "unevaluatedProperties"})
_EACH_ITEM = frozenset({"items", "additionalItems", "contains", "unevaluatedItems"})
_ITEM_LISTS = frozenset({"items", "prefixItems"})
_SHELVES = frozenset({"$defs", "definitions"})
_COUNTED = frozenset({"enum", "const", "required", "dependentRequired", "dependencies"})


class _Node:
    """One subschema: what it does at the value itself, and which subschemas meet the value and its children."""

    __slots__ = (
        "dangling",
        "each_item",
        "each_property",
        "factor",
        "here",
        "named_items",
        "named_properties",
        "size",
        "states",
    )

    def __init__(self) -> None:
        self.size = 1
        self.states = 0
        self.factor = 1
        self.here: list[int] = []
        self.each_property: list[int] = []
        self.named_properties: list[int] = []
        self.each_item: list[int] = []
        self.named_items: list[int] = []
        self.dangling: list[str] = []

    def below(self) -> Iterator[int]:
        yield from self.each_property
        yield from self.named_properties
        yield from self.each_item
        yield from self.named_items


@frozen
class Load:
    """What one value on the way down may meet, at most. Times the number of values this bounds a whole check."""

    size: int
    """Subschemas and listed values (of `enum` and the like) that are compared with it."""
    states: int
    """Regex states its text runs through."""
    height: int
    """Subschemas inside each other, which is stack in the engine."""


UNKNOWN_LOAD = Load(CAP, CAP, CAP)


class SchemaCost:
    """The cost of one schema, ready to be asked for any depth of instance.

    `schema` must be a plain copy of the caller's own: keywords that break the meta-schema in ways servers are known
    to (`"required": true` on a property, as in draft 3; a property that is no schema; draft 4 with an empty
    `required`) are taken out of it here, because the engine would refuse the schema as a whole for them.

    Mutable: the counts of the deepest level so far, which only grow.
    """

    def __init__(self, schema: JsonSchema) -> None:
        self.dangling: tuple[str, ...] = ()
        """Local references that lead nowhere, met on the way from the root."""
        self.opaque = False
        """References we cannot follow (another document, an embedded `$id`) or that come back to the same value."""
        self.compile_states = 0
        self.lookaround_depth = 0
        self.chain = 0
        self.fixed: Load | None = None
        self._nodes: list[_Node] = []
        self._levels: list[Load] = []
        self._columns: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._steps = 0
        if isinstance(schema, dict):
            self._build(schema)

        self._settle()

    @property
    def compiles_in_loop(self) -> bool:
        """Whether compiling is known to be quick."""
        return not self.opaque and self.compile_states <= MAX_COMPILE_STATES and self.chain <= MAX_CHAIN

    def load(self, depth: int) -> Load:
        """The load on the way down into a value of `depth` levels (see `Measure`)."""
        if self.opaque:
            return UNKNOWN_LOAD

        if self.fixed is not None:
            return self.fixed

        while len(self._levels) < depth:
            self._steps += len(self._order)
            if self._steps > MAX_STEPS or (self._levels and self._levels[-1].size >= CAP):
                return UNKNOWN_LOAD

            before = self._columns
            self._columns = (
                self._sum([node.size for node in self._nodes], before[0]),
                self._sum([node.states for node in self._nodes], before[1]),
                self._tallest(before[2]),
            )
            self._levels.append(Load(*(column[0] for column in self._columns)))

        return self._levels[depth - 1]

    def _build(self, schema: dict[str, Any]) -> None:
        names, embedded = find_anchors(schema)
        index: dict[int, int] = {}
        waiting: list[dict[str, Any]] = []

        def enter(part: object) -> list[int]:
            if not isinstance(part, dict):
                return []

            place = index.get(id(part))
            if place is None:
                place = index[id(part)] = len(self._nodes)
                self._nodes.append(_Node())
                waiting.append(part)

            return [place]

        enter(schema)
        remote: set[int] = set()
        while waiting:
            part = waiting.pop()
            place = index[id(part)]
            node = self._nodes[place]
            mend(part, draft4="draft-04" in str(schema.get("$schema", "")))
            for keyword, value in part.items():
                node.size += 1
                if keyword in _HERE_ONE:
                    node.here += enter(value)
                elif keyword in _HERE_MANY and isinstance(value, list):
                    node.size += len(value)
                    for branch in value:
                        node.here += enter(branch)
                elif keyword in _HERE_NAMED and isinstance(value, dict):
                    node.size += _count_values(value) if keyword == "dependencies" else len(value)
                    for branch in value.values():
                        node.here += enter(branch)
                elif keyword == "properties" and isinstance(value, dict):
                    node.size += len(value)
                    for branch in value.values():
                        node.named_properties += enter(branch)
                elif keyword == "patternProperties" and isinstance(value, dict):
                    node.size += len(value)
                    for pattern, branch in value.items():
                        node.each_property += enter(branch)
                        self._add_pattern(node, pattern)
                elif keyword in _ITEM_LISTS and isinstance(value, list):
                    node.size += len(value)
                    for branch in value:
                        node.named_items += enter(branch)
                elif keyword in _EACH_PROPERTY:
                    node.each_property += enter(value)
                elif keyword in _EACH_ITEM:
                    node.each_item += enter(value)
                elif keyword in _SHELVES and isinstance(value, dict):
                    # Entered so that it is mended like the rest; no edge, so it costs nothing until it is referred to.
                    for branch in value.values():
                        enter(branch)
                elif keyword in _REFERENCES:
                    targets = follow_reference(value, schema, names)
                    if targets is None:
                        remote.add(place)
                    elif not targets:
                        node.dangling.append(str(value))

                    for target in targets or ():
                        node.here += enter(target)
                elif keyword in _COUNTED or is_wide(value):
                    node.size += _count_values(value)
                elif keyword == "pattern" and isinstance(value, str):
                    self._add_pattern(node, value)

                if keyword in ("unevaluatedProperties", "unevaluatedItems"):
                    node.factor *= UNEVALUATED_FACTOR

        reachable, _, self.chain = self._walk([[*node.here, *node.below()] for node in self._nodes])
        if not embedded:
            self.dangling = tuple(text for place in reachable for text in self._nodes[place].dangling)

        self.opaque = embedded or not remote.isdisjoint(reachable)

    def _add_pattern(self, node: _Node, pattern: str) -> None:
        weight = weigh_pattern(pattern)
        node.states += weight.states
        self.compile_states = min(CAP, self.compile_states + weight.states + EMPTY_PATTERN_STATES)
        self.lookaround_depth = max(self.lookaround_depth, weight.lookaround_depth)

    def _settle(self) -> None:
        """Find the order of counting; without recursion the load is the same at any depth and is counted now."""
        if not self._nodes:
            self.fixed = Load(1, 0, 1)
            return

        order, cyclic, _ = self._walk([[*node.here, *node.below()] for node in self._nodes])
        self._order = order
        if not cyclic:
            sizes, states, heights = ([0] * len(self._nodes) for _ in range(3))
            self._sum([node.size for node in self._nodes], sizes, in_place=True)
            self._sum([node.states for node in self._nodes], states, in_place=True)
            self._tallest(heights, in_place=True)
            self.fixed = Load(sizes[0], states[0], heights[0])
            return

        here = [node.here for node in self._nodes]
        self._order, circular, _ = self._walk(here, roots=order)
        # {"allOf": [{"$ref": "#"}]}: evaluating a value comes back to the same value. No use is known for it.
        self.opaque = self.opaque or circular
        self._columns = tuple([0] * len(self._nodes) for _ in range(3))  # type: ignore[assignment] # three of them

    def _sum(self, own: list[int], before: list[int], *, in_place: bool = False) -> list[int]:
        """Count `own` along the worst way down; `before` holds the counts of one level less."""
        total = before if in_place else [0] * len(own)
        here, objects, arrays = list(own), [0] * len(own), [0] * len(own)
        for place in self._order:
            node = self._nodes[place]
            for branch in node.here:
                here[place] += here[branch]
                objects[place] += objects[branch]
                arrays[place] += arrays[branch]

            objects[place] += _sum_and_most(before, node.each_property, node.named_properties)
            arrays[place] += _sum_and_most(before, node.each_item, node.named_items)
            for column in (here, objects, arrays):
                column[place] = min(CAP, column[place] * node.factor)

            # A value is an object or an array, never both: without this, a recursive "any JSON" would double a level.
            total[place] = min(CAP, here[place] + max(objects[place], arrays[place]))

        return total

    def _tallest(self, before: list[int], *, in_place: bool = False) -> list[int]:
        height = before if in_place else [0] * len(before)
        for place in self._order:
            node = self._nodes[place]
            inner = max((height[branch] for branch in node.here), default=0)
            height[place] = 1 + max(inner, max((before[branch] for branch in node.below()), default=0))

        return height

    @staticmethod
    def _walk(edges: Sequence[Sequence[int]], *, roots: Sequence[int] = (0,)) -> tuple[list[int], bool, int]:
        """Depth first from `roots`: (children before parents, whether there is a cycle, the longest path walked)."""
        order: list[int] = []
        state = bytearray(len(edges))
        cyclic, longest = False, 0
        for root in roots:
            if state[root]:
                continue

            state[root] = 1
            path = [(root, iter(edges[root]))]
            while path:
                longest = max(longest, len(path))
                place, rest = path[-1]
                for following in rest:
                    if not state[following]:
                        state[following] = 1
                        path.append((following, iter(edges[following])))
                        break

                    cyclic = cyclic or state[following] == 1
                else:
                    state[place] = 2
                    order.append(place)
                    path.pop()

        return order, cyclic, longest


def _sum_and_most(counts: list[int], each: list[int], named: list[int]) -> int:
    """A child meets all of `each` but at most one of `named` (a property has one name)."""
    return sum(counts[place] for place in each) + max((counts[place] for place in named), default=0)


def _count_values(value: Any) -> int:
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        count += WIDE_INTEGER_SIZE if is_wide(item) else 1
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)

    return count


def check_input_schema(schema: Any) -> str | None:
    """Why a tool with this `inputSchema` must be refused, or None.

    The specification wants an object schema with `type: "object"`. What works without it stays usable: `{}`,
    `properties` without `type`, `["object", "null"]`, and a root `anyOf`, `oneOf`, `allOf` or `$ref` that leads to
    object schemas only. Never raises.
    """
    if schema is None:
        return "it has no input schema"

    if not isinstance(schema, Mapping):
        return f"its input schema is {_json_name(schema)}, not an object schema"

    try:
        plain = plain_copy(schema)
    except NotPlainError as error:
        return f"its input schema cannot be used: {error}"

    if "properties" in plain and not isinstance(plain["properties"], dict):
        return f"its input schema's properties is {_json_name(plain['properties'])}, not an object"

    if "required" in plain and not is_text_list(plain["required"]):
        return f"its input schema's required is {_json_name(plain['required'])}, not a list of names"

    if not _is_object_schema(plain):
        return f"its input schema is not an object schema: {_root_fault(plain)}"

    try:
        measure(plain, max_values=GRAPH_VALUES, max_text=GRAPH_TEXT)
    except TooLargeError:
        return None

    dangling = SchemaCost(plain).dangling
    return f"its input schema refers to {dangling[0][:100]!r}, which it does not define" if dangling else None


def _is_object_schema(root: dict[str, Any]) -> bool:
    """Whether the root, or else each branch and reference it consists of, takes objects."""
    waiting: list[Any] = [root]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if part is True:
            continue

        if not isinstance(part, dict):
            return False

        if id(part) in seen:
            continue

        seen.add(id(part))
        if "type" in part:
            kinds = part["type"]
            if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
                return False
        elif not isinstance(part.get("properties"), dict):
            lists = [part[keyword] for keyword in _HERE_MANY if isinstance(part.get(keyword), list)]
            waiting += [branch for branches in lists for branch in branches]
            # Nowhere to go: the dangling reference is the better reason, and another document is met at the call.
            waiting += follow_reference(part["$ref"], root, {}) or () if "$ref" in part else ()

    return True


def _root_fault(root: dict[str, Any]) -> str:
    if "type" in root:
        return f"its type is {str(root['type'])[:60]!r}"

    return "its branches allow other types"


def _json_name(value: object) -> str:
    if value is None:
        return "null"

    if isinstance(value, bool):
        return "true" if value else "false"

    names = ((str, "a string"), (int | float, "a number"), (list | tuple, "an array"), (Mapping, "an object"))
    return next((name for kind, name in names if isinstance(value, kind)), f"a {type(value).__name__}")
