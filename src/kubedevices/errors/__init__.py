"""Every exception of kubedevices. For whoever catches one; each carries fields, not only text.

::

    KubedevicesError                       exit_code 1: the answer is no
    ├── UsageError                         exit_code 2: wrong usage, config, module or YAML
    │   ├── ConfigError                    one or more mistakes with file, line, column and key
    │   ├── InvalidResourceName
    │   ├── InvalidDevice
    │   └── NotADeviceTree                 a scan without a result
    ├── CannotAsk                          exit_code 3: socket, file or permission
    │   ├── SocketPathTooLong
    │   ├── SocketInUse
    │   ├── DirectoryInUse
    │   ├── CannotRead
    │   └── BadSocketPath
    ├── WireError                          what happens on a connection
    │   ├── DialError
    │   ├── ProtocolError                  the peer broke HTTP/2, gRPC or protobuf
    │   └── RpcError                       a status that is not OK, with its code
    ├── PluginError                        a plugin process
    │   ├── ScanFailed
    │   ├── RegistrationRefused
    │   ├── DeviceListTooLarge
    │   ├── BadHookAnswer                  an ability that returned something else than it should
    │   ├── ImpossiblePreference           a preferred allocation that cannot be chosen
    │   └── AllocationRefused              unknown or unhealthy device in Allocate
    │       └── ConflictingDevices         two devices that want the same place
    └── NodeError                          the device manager, in the kubelet's words
        ├── RegistrationError              …UnsupportedVersion, …InvalidResourceName, dial, options
        ├── AllocationError                …why a container gets no devices
        ├── EndpointStopped
        ├── ListenFailed                   kubelet.sock could not be bound; exit_code 3
        └── NotInTime

shared  root, usage, sockets and files, the wire
plugin  a plugin process
node    the device manager
"""

from kubedevices.errors.node import (
    AdmissionRejected,
    AllocationError,
    BadEndpoint,
    BadResourceName,
    DevicesNoLongerHealthy,
    DevicesUnavailable,
    DialPluginFailed,
    EndpointNotFound,
    EndpointStopped,
    ListenFailed,
    NoContainerResponse,
    NodeError,
    NoHealthyDevices,
    NothingAllocated,
    NotInTime,
    PluginOptionsFailed,
    PreferredAllocationFailed,
    PreStartFailed,
    RegistrationError,
    RequestChanged,
    UnexpectedlyFewDevices,
    UnknownPlugin,
    UnregisteredResource,
    UnsupportedVersion,
)
from kubedevices.errors.plugin import (
    AllocationRefused,
    BadHookAnswer,
    ConflictingDevices,
    DeviceListTooLarge,
    ImpossiblePreference,
    NotADeviceTree,
    PluginError,
    RegistrationRefused,
    ScanFailed,
)
from kubedevices.errors.shared import (
    BadSocketPath,
    CannotAsk,
    CannotRead,
    ConfigError,
    ConfigProblem,
    DialError,
    DirectoryInUse,
    InvalidDevice,
    InvalidResourceName,
    KubedevicesError,
    ProtocolError,
    RpcError,
    SocketInUse,
    SocketPathTooLong,
    StatusCode,
    UsageError,
    WireError,
)

__all__ = [
    "AdmissionRejected",
    "AllocationError",
    "AllocationRefused",
    "BadEndpoint",
    "BadHookAnswer",
    "BadResourceName",
    "BadSocketPath",
    "CannotAsk",
    "CannotRead",
    "ConfigError",
    "ConfigProblem",
    "ConflictingDevices",
    "DeviceListTooLarge",
    "DevicesNoLongerHealthy",
    "DevicesUnavailable",
    "DialError",
    "DialPluginFailed",
    "DirectoryInUse",
    "EndpointNotFound",
    "EndpointStopped",
    "ImpossiblePreference",
    "InvalidDevice",
    "InvalidResourceName",
    "KubedevicesError",
    "ListenFailed",
    "NoContainerResponse",
    "NoHealthyDevices",
    "NodeError",
    "NotADeviceTree",
    "NotInTime",
    "NothingAllocated",
    "PluginError",
    "PluginOptionsFailed",
    "PreStartFailed",
    "PreferredAllocationFailed",
    "ProtocolError",
    "RegistrationError",
    "RegistrationRefused",
    "RequestChanged",
    "RpcError",
    "ScanFailed",
    "SocketInUse",
    "SocketPathTooLong",
    "StatusCode",
    "UnexpectedlyFewDevices",
    "UnknownPlugin",
    "UnregisteredResource",
    "UnsupportedVersion",
    "UsageError",
    "WireError",
]
