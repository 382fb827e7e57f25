"""Messages and method handlers of the device plugin API for plugins written on grpcio alone.

Not for kubedevices itself: the plugins of this folder must not share code with what checks them.
Only the descriptors are the same file, because they are the interface.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from tests.kubelet_api.protobuf_classes import POOL, message_class

message = message_class

Empty = message("v1beta1.Empty")
DevicePluginOptions = message("v1beta1.DevicePluginOptions")
RegisterRequest = message("v1beta1.RegisterRequest")
ListAndWatchResponse = message("v1beta1.ListAndWatchResponse")
AllocateResponse = message("v1beta1.AllocateResponse")
PreferredAllocationResponse = message("v1beta1.PreferredAllocationResponse")
PreStartContainerResponse = message("v1beta1.PreStartContainerResponse")
PluginInfo = message("pluginregistration.PluginInfo")
RegistrationStatusResponse = message("pluginregistration.RegistrationStatusResponse")


def handlers(
    service: str, methods: Mapping[str, Callable[..., Any]], described_as: str = ""
) -> Any:
    """Return what `add_generic_rpc_handlers` takes: one function or generator per method.

    `described_as` is a service with the same methods and messages, if `service` has no description.
    """
    described = POOL.FindServiceByName(described_as or service)
    made = {}
    for name, function in methods.items():
        method = described.methods_by_name[name]
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        made[name] = make(
            function,
            GetMessageClass(method.input_type).FromString,
            GetMessageClass(method.output_type).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service, made)
