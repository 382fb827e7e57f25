"""The schema of the Helm chart's values, and the values that describe a deployment. Pure.

The chart is deploy/helm/kubedevices. A chart cannot read a configuration file. So facts that follow
from the file, such as the directories that a pod must see, are values too; `kubedevices manifests …
--as-values` prints them.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kubedevices.config.keys import key, key_names
from kubedevices.manifests.deployment import Deployment, Plugin, PluginValues
from kubedevices.manifests.scheduling import as_toleration
from kubedevices.manifests.values import CommonValues, config_name, plain


@dataclass(frozen=True, kw_only=True)
class Image:
    """The image of the plugin."""

    HINT: ClassVar[str] = "write '{repository: lab.example.com/kubedevices, tag: \"1\"}'"

    repository: str = key("name with its registry", default="localhost/kubedevices")
    tag: str = key("by default the version of the chart", default="")
    digest: str = key("such as sha256:…; used instead of the tag", default="")


@dataclass(frozen=True, kw_only=True)
class ChartMount:
    """A directory of the host, for a plugin of your own or a health check."""

    HINT: ClassVar[str] = "write '- {path: /run/widgets}'"

    path: str = key("path on the host")
    inside: str = key("path in the container, by default the same", default="")
    read_only: bool = key("false: the container may write there", default=True)


@dataclass(frozen=True, kw_only=True)
class ChartNodeConfig:
    """Another configuration, for nodes with the label; missing keys have the plugin's values."""

    HINT: ClassVar[str] = "write '- {name: big, config: ...}'"

    name: str = key("value of the label of these nodes", check=config_name)
    config: str = key("text of the configuration")
    host_dirs: tuple[str, ...] = key("as above", default=())
    writes_cdi: bool = key("as above", default=False)
    devices: int = key("as above", default=0)


@dataclass(frozen=True, kw_only=True)
class ChartValues(PluginValues, CommonValues):
    """Every value of the chart."""

    plugin: Plugin = key(
        "simulate, expose, proxy, or run for a plugin of your own", default="expose"
    )
    name_override: str = key(
        "name of all objects, at most 57 characters; by default that of the release", default=""
    )
    image: Image = key("the image of the plugin", default=Image())
    config: str = key(
        "text of the configuration file; expose without a text gives /dev/null, as an example",
        default="",
    )
    mounts: tuple[ChartMount, ...] = key(
        "directories of the host that a plugin of your own or a health check needs", default=()
    )
    mode_file: str = key(
        "file of each node with the mode, or configmap: the plugin follows a change of it",
        default="",
    )
    node_configs: tuple[ChartNodeConfig, ...] = key(
        "configurations of nodes with the label `nodeConfigLabel`; all other nodes get `config`",
        default=(),
        unique="name",
    )


def chart_values(deployment: Deployment, others: Sequence[Deployment] = ()) -> dict[str, Any]:
    """Return the values of the chart that describe a deployment, without the chart's defaults."""
    fields = dataclasses.fields
    admin = {each.name: getattr(deployment.admin, each.name) for each in fields(CommonValues)}
    own = {each.name: getattr(deployment, each.name) for each in fields(PluginValues)}
    tolerations = map(as_toleration, deployment.tolerations)
    values = ChartValues(
        **{
            **admin,
            **own,
            "plugin": deployment.plugin,
            "node_selector": {**deployment.admin.node_selector, **deployment.node_labels},
            "tolerations": (*tolerations, *deployment.admin.tolerations),
            "metrics": dataclasses.replace(deployment.admin.metrics, enabled=deployment.metrics),
            "name_override": deployment.name,
            "image": image_of(deployment.image),
            "config": deployment.config_text or "",
            "mode_file": deployment.mode_file or "",
            "mounts": tuple(ChartMount(**each._asdict()) for each in deployment.mounts),
            "node_configs": tuple(
                ChartNodeConfig(  # with all keys: missing keys would have the plugin's values
                    name=each.node_config,
                    config=each.config or "",
                    host_dirs=each.host_dirs,
                    writes_cdi=each.writes_cdi,
                    devices=each.devices,
                )
                for each in others
            ),
        }
    )
    return {"plugin": deployment.plugin, **_without_defaults(values)}


def image_of(name: str) -> Image:
    """Return the parts of the name of an image."""
    rest, _, digest = name.partition("@")
    head, slash, last = rest.rpartition("/")
    repository, _, tag = last.partition(":")
    # Without a tag here, the chart would use its own version as the tag.
    tag = tag or ("" if digest else "latest")
    return Image(repository=f"{head}{slash}{repository}", tag=tag, digest=digest)


def _without_defaults(values: Any) -> dict[str, Any]:
    found = {}
    names = key_names(type(values))
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            found[names[field.name]] = as_written(value)
    return found


def as_written(value: Any) -> Any:
    """Return a value in the form of a file of values."""
    if isinstance(value, ChartNodeConfig):
        names = key_names(ChartNodeConfig)
        return {names[name]: as_written(each) for name, each in vars(value).items()}
    if dataclasses.is_dataclass(value):
        return _without_defaults(value)
    if isinstance(value, tuple):
        return [as_written(each) for each in value]
    return plain(value)
