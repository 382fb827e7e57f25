"""Parses YAML that another process or a stranger may have written. Imports PyYAML when called.

The composer of PyYAML calls itself for each level, in C, so a deep text ends the process by a
signal. Its constructor merges anchors that double with each line, and computes with numbers of any
length. So this module composes the nodes itself: without recursion, from the events of the parser,
and each event is checked against the limits first. The parser of libyaml does not call itself, and
reads at most 1024 characters ahead of an event.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from kubedevices.errors import NotYaml

DEPTH_LIMIT = 100


class YamlLimits(NamedTuple):
    """What a text may have. Each alias counts as all values of its anchor."""

    size: int
    """Characters."""

    values: int
    """Texts, numbers, lists and mappings."""

    aliases: bool = True


STRANGER = YamlLimits(2**20, 50_000, aliases=False)
"""For files in directories where others write."""

USER = YamlLimits(2**24, 300_000)
"""For files that the user of this process names."""

_NUMBER_LENGTH = 100  # characters. A longer plain text is no number.
_TEXT = "tag:yaml.org,2002:str"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DIRECTIVES = 100  # libyaml compares each %TAG with all before it


def compose(text: str, limits: YamlLimits) -> Any:
    """Return the root `yaml.Node` of one document, None without one; raises `NotYaml`."""
    return _only_document(text, limits, _loader(like_json=False))


def compose_all(text: str, limits: YamlLimits) -> Iterator[Any]:
    """Yield the root `yaml.Node` of each document. Raises `NotYaml`."""
    return _documents(text, limits, _loader(like_json=False))


def construct(node: Any) -> Any:
    """Return the value of a node from `compose`. Raises `NotYaml`."""
    return _constructed(node, _loader(like_json=False))


def load_yaml(text: str, limits: YamlLimits, *, like_json: bool = False) -> Any:
    """Return the value of a text with one document; None if it has no document.

    `like_json` refuses duplicate keys, and reads dates as text, as JSON has them. Raises `NotYaml`.
    """
    loader = _loader(like_json=like_json)
    node = _only_document(text, limits, loader)
    return None if node is None else _constructed(node, loader)


def _constructed(node: Any, loader: Any) -> Any:
    try:
        return loader("").construct_document(node)
    except Exception as error:  # for `0x_` or `!!bool perhaps` not a YAMLError, but ValueError etc.
        raise _not_yaml(error) from None


def _only_document(text: str, limits: YamlLimits, loader: Any) -> Any:
    found = None
    for number, node in enumerate(_documents(text, limits, loader)):
        if number:
            raise _fault("a second document begins here", node.start_mark)
        found = node
    return found


def _documents(text: str, limits: YamlLimits, loader: Any) -> Iterator[Any]:
    import yaml  # noqa: PLC0415  # takes 2 MB; many processes read no YAML

    if len(text) > limits.size:
        problem = f"it has more than {limits.size} characters"
        raise NotYaml(problem, is_beyond_limits=True)
    if text.count("%TAG") > _DIRECTIVES:
        problem = f"it has more than {_DIRECTIVES} %TAG directives"
        raise NotYaml(problem, is_beyond_limits=True)
    composer = _Composer(limits, loader("").resolve)
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                composer.take(event)
            elif isinstance(event, yaml.DocumentEndEvent):
                yield composer.finish()
    except yaml.YAMLError as error:
        raise _not_yaml(error) from None


@cache
def _loader(*, like_json: bool) -> Any:
    """Return a safe loader class of PyYAML."""
    import yaml  # noqa: PLC0415

    # libyaml is ten times faster and not part of every PyYAML
    parent: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class LoaderLikeJson(parent):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) != len(node.value):
                raise _fault("duplicate key", node.start_mark)
            return mapping

    LoaderLikeJson.yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in parent.yaml_implicit_resolvers.items()
    }
    return LoaderLikeJson if like_json else parent


def _refusal(problem: str, mark: Any) -> NotYaml:
    """Return the error for a text that is YAML, but not within our limits."""
    return NotYaml(problem, mark.line + 1, mark.column + 1, is_beyond_limits=True)


def _fault(problem: str, mark: Any) -> NotYaml:
    return NotYaml(problem, mark.line + 1, mark.column + 1)


def _not_yaml(error: Exception) -> NotYaml:
    if isinstance(error, NotYaml):
        return error
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    texts = [getattr(error, name, None) for name in ("context", "problem")] if mark else [error]
    problem = " ".join(", ".join(str(each) for each in texts if each).split())
    return _fault(problem, mark) if mark else NotYaml(problem)


class _Open:
    """A list or mapping whose end has not come yet."""

    __slots__ = ("anchor", "before", "height", "keys", "node")

    def __init__(self, node: Any, anchor: str | None, before: int) -> None:
        self.node, self.anchor, self.before = node, anchor, before
        self.height = 1
        """Levels from this one down."""

        self.keys: list[Any] = []
        """The key of a mapping whose value has not come yet."""


class _Anchor(NamedTuple):
    """A node that has a name; `values` and `height` are 0 until it is complete."""

    node: Any
    values: int = 0
    height: int = 0


class _Composer:
    """Makes nodes of the events of one text."""

    def __init__(self, limits: YamlLimits, resolve: Any) -> None:
        import yaml  # noqa: PLC0415

        self._yaml, self._limits, self._resolve = yaml, limits, resolve
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchor] = {}
        self._values = 0
        self._root: Any = None

    def finish(self) -> Any:
        """Return the root of the document that has ended."""
        root, self._root = self._root, None
        self._anchors = {}
        return root

    def take(self, event: Any) -> None:
        """Add the node of an event, or the end of a list or mapping."""
        yaml = self._yaml
        if isinstance(event, yaml.CollectionEndEvent):
            self._close(event)
        elif isinstance(event, yaml.AliasEvent):
            self._take_alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._count(1, event)
            self._name(event, node := self._scalar(event), 1, 0)
            self._put(node, 0)
        else:
            self._begin(event)

    def _scalar(self, event: Any) -> Any:
        node_type = self._yaml.ScalarNode
        is_long = len(event.value) > _NUMBER_LENGTH
        # PyYAML would compare a long text with the patterns of numbers, and then compute with it.
        tag = _TEXT if is_long and not event.tag else self._tag(node_type, event, event.value)
        if is_long and tag in _NUMBERS:
            problem = f"a number has more than {_NUMBER_LENGTH} characters"
            raise _refusal(problem, event.start_mark)
        return node_type(tag, event.value, event.start_mark, event.end_mark, style=event.style)

    def _tag(self, node_type: Any, event: Any, value: str | None) -> Any:
        if event.tag in (None, "!"):
            return self._resolve(node_type, value, event.implicit)
        return event.tag

    def _begin(self, event: Any) -> None:
        yaml = self._yaml
        is_list = isinstance(event, yaml.SequenceStartEvent)
        node_type = yaml.SequenceNode if is_list else yaml.MappingNode
        before = self._values
        self._count(1, event)
        self._check_depth(1, event)
        tag = self._tag(node_type, event, None)
        node = node_type(tag, [], event.start_mark, None, flow_style=event.flow_style)
        self._name(event, node, 0, 0)
        self._open.append(_Open(node, event.anchor, before))

    def _close(self, event: Any) -> None:
        ended = self._open.pop()
        ended.node.end_mark = event.end_mark
        if ended.anchor is not None:
            values = self._values - ended.before
            self._anchors[ended.anchor] = _Anchor(ended.node, values, ended.height)
        self._put(ended.node, ended.height)

    def _take_alias(self, event: Any) -> None:
        if not self._limits.aliases:
            raise _refusal("an alias is not allowed in this file", event.start_mark)
        found = self._anchors.get(event.anchor)
        if found is None:
            raise _fault(f"found undefined alias {event.anchor!r}", event.start_mark)
        if not found.values:
            raise _refusal("an anchor contains itself", event.start_mark)
        self._count(found.values, event)
        self._check_depth(found.height, event)
        self._put(found.node, found.height)

    def _name(self, event: Any, node: Any, values: int, height: int) -> None:
        if event.anchor is None:
            return
        if event.anchor in self._anchors:
            raise _fault(f"found duplicate anchor {event.anchor!r}", event.start_mark)
        self._anchors[event.anchor] = _Anchor(node, values, height)

    def _put(self, node: Any, height: int) -> None:
        """Add a complete node to the list or mapping around it."""
        if not self._open:
            self._root = node
            return
        around = self._open[-1]
        around.height = max(around.height, height + 1)
        if isinstance(around.node, self._yaml.SequenceNode):
            around.node.value.append(node)
        elif around.keys:
            around.node.value.append((around.keys.pop(), node))
        else:
            around.keys.append(node)

    def _count(self, values: int, event: Any) -> None:
        self._values += values
        if self._values > self._limits.values:
            raise _refusal(f"it has more than {self._limits.values} values", event.start_mark)

    def _check_depth(self, levels: int, event: Any) -> None:
        if len(self._open) + levels > DEPTH_LIMIT:
            problem = f"this is nested more than {DEPTH_LIMIT} levels deep"
            raise _refusal(problem, event.start_mark)
