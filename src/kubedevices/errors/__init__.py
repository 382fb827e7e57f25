"""Every exception of kubedevices. Each has fields, not only a text.

::

    KubedevicesError                       exit_code 1: the answer is no
    ├── UsageError                         exit_code 2: wrong usage, config, module or YAML
    │   ├── ConfigError                    one or more mistakes with file, line, column and key
    │   ├── InvalidResourceName
    │   ├── InvalidDevice
    │   ├── NotADeviceTree                 a scanner reported another type
    │   ├── InvalidCdiName, …Spec, …Annotation
    │   └── NotExpressible                 run options that a runtime cannot express
    ├── CannotAsk                          exit_code 3: socket, file or permission
    │   ├── SocketPathTooLong
    │   ├── SocketInUse
    │   ├── DirectoryInUse
    │   ├── CannotRead
    │   ├── NoNode                         no `kubedevices node` serves a directory
    │   ├── NotPermitted                   to look at a file, to use a socket
    │   ├── KubeletSilent                  it accepts connections, but does not answer
    │   ├── BadSocketPath
    │   ├── LedgerUnusable
    │   ├── CdiWriteFailed
    │   ├── ApiUnreachable                 no answer from a Kubernetes API server
    │   ├── NotADeviceFile
    │   ├── NoVfioGroup
    │   └── PluginNotStarted, NoPrivateView, NotInPlace    of a plugin under check
    ├── CommandNotStarted                  exit_code 126, or 127 where there is no such command
    ├── UnresolvableCdiDevices             names that no CDI file defines, with the reasons
    ├── CdiInjectionFailed                 an edit that is impossible on this host
    ├── WireError                          an error on a connection
    │   ├── DialError
    │   ├── ProtocolError                  the peer broke HTTP/2, gRPC or protobuf
    │   └── RpcError                       a status that is not OK, with its code
    │       └── PluginAway, PluginLate     a plugin behind the proxy
    ├── PluginError                        a plugin process
    │   ├── ScanFailed
    │   ├── RegistrationRefused
    │   ├── DeviceListTooLarge
    │   ├── BadHookAnswer                  an ability returned a wrong type
    │   ├── HookFailed                     an ability raised
    │   ├── HookHangs                      an ability does not end
    │   ├── HookTimedOut                   an ability is late
    │   ├── ImpossiblePreference           a preferred allocation that cannot be chosen
    │   └── AllocationRefused              unknown or unhealthy device in Allocate
    │       ├── ConflictingDevices         two devices need the same path or variable
    │       ├── DeviceCordoned             out of service
    │       ├── SharesRefused              a container asked for more shares than it may have
    │       └── NoDevicesNamed
    ├── DraError                           a DRA driver
    │   ├── ApiRefused                     the API server's word for what is wrong
    │   ├── ClaimRefused                   a claim cannot be prepared
    │   └── PreparedUnwritable             its file of prepared claims
    └── NodeError                          the device manager, in the kubelet's words
        ├── RegistrationError              …version, name, dial, options, what a watcher met
        ├── DynamicResourcesFailed         the claims of a pod, in a kubelet's words
        ├── AllocationError                …why a container gets no devices
        ├── EndpointStopped, ListAndWatchEnded
        ├── LedgerDamaged, LedgerWriteFailed   the node's own durable state
        ├── HoldInUse                      a pod's devices are in use by a command that runs
        ├── ListenFailed                   kubelet.sock could not be bound; exit_code 3
        └── NotInTime, GivenUp

shared     root, usage, sockets and files, the wire
container  what a container is to get: CDI, device files, runtimes
plugin     a plugin process
dra        a DRA driver
node       the device manager
watcher    a plugin found in the plugin registry directory
proxy      a plugin behind the proxy
check      a plugin under check
"""

from kubedevices.errors.check import NoPrivateView, NotInPlace, PluginNotStarted
from kubedevices.errors.container import (
    CdiInjectionFailed,
    CdiProblem,
    CdiWriteFailed,
    InvalidCdiAnnotation,
    InvalidCdiName,
    InvalidCdiSpec,
    NotADeviceFile,
    NotExpressible,
    NoVfioGroup,
    UnresolvableCdiDevices,
)
from kubedevices.errors.dra import (
    ApiRefused,
    ApiUnreachable,
    ClaimRefused,
    DraError,
    DriverNotAccepted,
    DynamicResourcesFailed,
    PreparedUnwritable,
)
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
    GivenUp,
    HoldInUse,
    LedgerDamaged,
    LedgerUnusable,
    LedgerWriteFailed,
    ListAndWatchEnded,
    ListenFailed,
    NoContainerResponse,
    NodeError,
    NoHealthyDevices,
    NothingAllocated,
    NotInTime,
    PluginNotBack,
    PluginOptionsFailed,
    PreferredAllocationFailed,
    PreStartFailed,
    RegistrationError,
    RegistrationServerFailed,
    RequestChanged,
    TooManyPlugins,
    UnexpectedlyFewDevices,
    UnknownPlugin,
    UnregisteredResource,
    UnsupportedVersion,
)
from kubedevices.errors.plugin import (
    AllocationRefused,
    BadHookAnswer,
    ConflictingDevices,
    DeviceCordoned,
    DeviceListTooLarge,
    HookFailed,
    HookHangs,
    HookTimedOut,
    ImpossiblePreference,
    NoDevicesNamed,
    NotADeviceTree,
    PluginError,
    RegistrationRefused,
    ScanFailed,
    SharesRefused,
)
from kubedevices.errors.proxy import PluginAway, PluginLate
from kubedevices.errors.shared import (
    BadSocketPath,
    CannotAsk,
    CannotRead,
    CommandNotStarted,
    ConfigError,
    ConfigProblem,
    DialError,
    DirectoryInUse,
    InvalidDevice,
    InvalidResourceName,
    KubedevicesError,
    KubeletSilent,
    NoNode,
    NotPermitted,
    ProtocolError,
    RpcError,
    SocketInUse,
    SocketPathTooLong,
    StatusCode,
    UsageError,
    WireError,
)
from kubedevices.errors.watcher import (
    BadPluginName,
    GetInfoFailed,
    NoHandlerForPlugin,
    NotifyFailed,
    PluginRegistrationFailed,
    PluginValidationFailed,
    VersionNotSupportedByPlugin,
    WatchedSocketNotDialled,
)

__all__ = [
    "AdmissionRejected",
    "AllocationError",
    "AllocationRefused",
    "ApiRefused",
    "ApiUnreachable",
    "BadEndpoint",
    "BadHookAnswer",
    "BadPluginName",
    "BadResourceName",
    "BadSocketPath",
    "CannotAsk",
    "CannotRead",
    "CdiInjectionFailed",
    "CdiProblem",
    "CdiWriteFailed",
    "ClaimRefused",
    "CommandNotStarted",
    "ConfigError",
    "ConfigProblem",
    "ConflictingDevices",
    "DeviceCordoned",
    "DeviceListTooLarge",
    "DevicesNoLongerHealthy",
    "DevicesUnavailable",
    "DialError",
    "DialPluginFailed",
    "DirectoryInUse",
    "DraError",
    "DriverNotAccepted",
    "DynamicResourcesFailed",
    "EndpointNotFound",
    "EndpointStopped",
    "GetInfoFailed",
    "GivenUp",
    "HoldInUse",
    "HookFailed",
    "HookHangs",
    "HookTimedOut",
    "ImpossiblePreference",
    "InvalidCdiAnnotation",
    "InvalidCdiName",
    "InvalidCdiSpec",
    "InvalidDevice",
    "InvalidResourceName",
    "KubedevicesError",
    "KubeletSilent",
    "LedgerDamaged",
    "LedgerUnusable",
    "LedgerWriteFailed",
    "ListAndWatchEnded",
    "ListenFailed",
    "NoContainerResponse",
    "NoDevicesNamed",
    "NoHandlerForPlugin",
    "NoHealthyDevices",
    "NoNode",
    "NoPrivateView",
    "NoVfioGroup",
    "NodeError",
    "NotADeviceFile",
    "NotADeviceTree",
    "NotExpressible",
    "NotInPlace",
    "NotInTime",
    "NotPermitted",
    "NothingAllocated",
    "NotifyFailed",
    "PluginAway",
    "PluginError",
    "PluginLate",
    "PluginNotBack",
    "PluginNotStarted",
    "PluginOptionsFailed",
    "PluginRegistrationFailed",
    "PluginValidationFailed",
    "PreStartFailed",
    "PreferredAllocationFailed",
    "PreparedUnwritable",
    "ProtocolError",
    "RegistrationError",
    "RegistrationRefused",
    "RegistrationServerFailed",
    "RequestChanged",
    "RpcError",
    "ScanFailed",
    "SharesRefused",
    "SocketInUse",
    "SocketPathTooLong",
    "StatusCode",
    "TooManyPlugins",
    "UnexpectedlyFewDevices",
    "UnknownPlugin",
    "UnregisteredResource",
    "UnresolvableCdiDevices",
    "UnsupportedVersion",
    "UsageError",
    "VersionNotSupportedByPlugin",
    "WatchedSocketNotDialled",
    "WireError",
]
