"""Sizes in a graph of `torch.export`, such as the number of rows, in a form that a tracer can follow.

The operations of such a graph get sizes as plain numbers, which a tracer takes for constants: a class token
expanded to the rows of the example would then never fit another number of rows. Methods of tensors and
functions of torch do the same and are followed.
"""

from typing import Any

import torch
from torch import fx


def let_sizes_be_traced(graph: fx.Graph) -> None:
    """Ask for sizes, and pass them on, by methods and functions of torch instead of operations of ATen."""
    sizes: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is torch.ops.aten.sym_size.int:
            node.op, node.target = "call_method", "size"
            sizes.add(node)
        elif isinstance(node.target, torch._ops.OpOverload):
            if not sizes.isdisjoint(node.all_input_nodes):
                _call_by_name(node)
        elif node.all_input_nodes and sizes.issuperset(node.all_input_nodes):  # arithmetic of sizes
            sizes.add(node)


def _call_by_name(node: fx.Node) -> None:
    """The method of a tensor, or else the function of torch, that does what the operation does, if any."""
    target: Any = node.target
    name = target._schema.name.split("::")[1]
    arguments = target._schema.arguments
    if arguments and arguments[0].name == "self" and hasattr(torch.Tensor, name):
        node.op, node.target = "call_method", name
    elif hasattr(torch, name):
        node.target = getattr(torch, name)
