"""CEL, the language of device selectors, as the scheduler of Kubernetes 1.36 evaluates it. Pure.

The official runtime of CEL (the extra `kubedevices[cel]`) parses and checks an expression, and
answers the standard functions. The operators, and what only Kubernetes has, are here: quantities,
versions, lists, errors, and the cost.

checked_expr  the tree of a checked expression, from the bytes of the official runtime
kubernetes    quantities and versions
environment   what an expression may name; the official runtime
evaluate      the value of a tree for one device
selector      `Selector`: one expression, compiled once
"""

from kubedevices.values.selectors.selector import Part, Selector

__all__ = ["Part", "Selector"]
