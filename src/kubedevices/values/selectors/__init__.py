"""CEL, the language of device selectors, as Kubernetes 1.36 checks and evaluates it.

The official runtime of CEL (the extra `kubedevices[cel]`) parses an expression, and answers regular
expressions and a few functions of texts. All else is here, because the runtime knows neither the
types and functions of Kubernetes nor the cost: the check of types and the estimate of the cost, as
an API server makes them, and the evaluation, as a scheduler makes it.

cel_types       types, and whether they fit
cel_values      values that Python does not have, equality, order
syntax          the tree of a parsed expression, from the bytes of the official runtime
declarations    what an expression may name, with types
checker         the types in a tree, and what an API server refuses
call_cost       the most that a call of a function may cost
cost            the most that an expression may cost
runtime         the official runtime
times           durations and points in time
network         addresses, networks, URLs
arithmetic      `+ - * / %`, conversions
kubernetes      quantities and versions
name_formats    named formats, such as `format.dns1123Label()`
list_functions  functions of lists, sets, maps and optional values
text_functions  functions of texts
evaluate        the value of a tree for one device
term_texts      the texts of the terms of an expression
selector        `Selector`: one expression, compiled once
"""

from kubedevices.values.selectors.selector import Part, Selector

__all__ = ["Part", "Selector"]
