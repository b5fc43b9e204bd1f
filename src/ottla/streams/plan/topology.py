"""A finished topology: the plan, printed as Kafka Streams prints it, and drawn."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.streams.plan.drawing import draw
from ottla.streams.plan.plan import Node, Plan, ProcessorNode, SinkNode, SourceNode, subtopologies


@dataclass(frozen=True, slots=True)
class Topology:
    plan: Plan

    def describe(self) -> str:
        """The text of Kafka Streams' ``Topology#describe``, which visualisers for it read."""
        return describe(self.plan)

    def draw(self) -> str:
        """The topology as an SVG picture."""
        return draw(self.plan)

    def __str__(self) -> str:
        return self.describe()


def describe(plan: Plan) -> str:
    parts = ["Topologies:\n "]
    for number, names in enumerate(subtopologies(plan)):
        parts.append("  ")
        if names <= plan.global_nodes:
            parts.append(f"Sub-topology: {number} for global store (will not generate tasks)\n")
            parts.extend(f"    {_describe_node(plan, name)}\n" for name in _ordered(plan, names))
        else:
            parts.append(f"Sub-topology: {number}\n")
            parts.extend(f"    {_describe_node(plan, name)}\n" for name in _ordered(plan, names))
            parts.append("\n")
    return "".join(parts)


def _ordered(plan: Plan, names: frozenset[str]) -> list[str]:
    """Nodes by how many nodes follow them, most first."""
    sizes = {name: _size(plan, name) for name in names}
    return sorted(names, key=lambda name: (-sizes[name], name))


def _size(plan: Plan, name: str) -> int:
    return 1 + sum(_size(plan, child) for child in plan.children.get(name, ()))


def _describe_node(plan: Plan, name: str) -> str:
    node: Node = plan.nodes[name]
    children = _names(plan, plan.children.get(name, ()))
    parents = _names(plan, plan.parents(name))
    match node:
        case SourceNode():
            topics = node.pattern or f"[{', '.join(sorted(node.topics))}]"
            return f"Source: {name} (topics: {topics})\n      --> {children}"
        case ProcessorNode():
            # Every task has global stores, so only the node that fills one shows it.
            shown = set(node.stores) - (frozenset() if name in plan.global_nodes else plan.global_stores)
            stores = ", ".join(sorted(shown))
            return f"Processor: {name} (stores: [{stores}])\n      --> {children}\n      <-- {parents}"
        case SinkNode(topic=str(topic)):
            return f"Sink: {name} (topic: {topic})\n      <-- {parents}"
        case SinkNode():
            extractor = getattr(node.topic, "__qualname__", node.topic)
            return f"Sink: {name} (extractor class: {extractor})\n      <-- {parents}"


def _names(plan: Plan, names: tuple[str, ...]) -> str:
    return ", ".join(sorted(names, key=lambda name: (-_size(plan, name), name))) or "none"
