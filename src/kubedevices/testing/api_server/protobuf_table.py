"""The fields of those messages of Kubernetes that drivers write, for `protobuf_bodies`.

Facts of the generated.proto and types.go of k8s.io/api (resource/v1, core/v1, coordination/v1) and
of k8s.io/apimachinery (meta/v1), 0.36. A line for each message, and below it its fields: number,
name in JSON, and type. `[T]` is a list, `{T}` a map of texts to T. A name `.` means that the fields
of the message stand in the outer object. A field without a mark is left out of JSON if it is empty
(omitempty). `!`: it is not. `?`: it is a pointer in Go, so that an empty value differs from none.
"""

MESSAGES = """
AllocatedDeviceStatus
    1 driver text!, 2 pool text!, 3 device text!, 7 shareID text?, 4 conditions [Condition]!,
    5 data RawExtension?, 6 networkData NetworkDeviceData?
AllocationResult
    1 devices DeviceAllocationResult, 3 nodeSelector NodeSelector?, 5 allocationTimestamp Time?
CELDeviceSelector
    1 expression text!
CapacityRequestPolicy
    1 default Quantity?, 3 validValues [Quantity], 4 validRange CapacityRequestPolicyRange?
CapacityRequestPolicyRange
    1 min Quantity?, 2 max Quantity?, 3 step Quantity?
CapacityRequirements
    1 requests {Quantity}
Condition
    1 type text!, 2 status text!, 3 observedGeneration int, 4 lastTransitionTime Time!,
    5 reason text!, 6 message text!
ConfigMap
    1 metadata ObjectMeta, 4 immutable flag?, 2 data {text}, 3 binaryData {base64}
Counter
    1 value Quantity!
CounterSet
    1 name text!, 2 counters {Counter}
DeleteOptions
    1 gracePeriodSeconds int?, 2 preconditions Preconditions?, 3 orphanDependents flag?,
    4 propagationPolicy text?, 5 dryRun [text]
Device
    1 name text!, 2 attributes {DeviceAttribute}, 3 capacity {DeviceCapacity},
    4 consumesCounters [DeviceCounterConsumption], 5 nodeName text?, 6 nodeSelector NodeSelector?,
    7 allNodes flag?, 8 taints [DeviceTaint], 9 bindsToNode flag?, 10 bindingConditions [text],
    11 bindingFailureConditions [text], 12 allowMultipleAllocations flag?,
    13 nodeAllocatableResourceMappings {NodeAllocatableResourceMapping}
DeviceAllocationConfiguration
    1 source text!, 2 requests [text], 3 . DeviceConfiguration
DeviceAllocationResult
    1 results [DeviceRequestAllocationResult], 2 config [DeviceAllocationConfiguration]
DeviceAttribute
    2 int int?, 3 bool flag?, 4 string text?, 5 version text?, 6 ints [int], 7 bools [flag],
    8 strings [text], 9 versions [text]
DeviceCapacity
    1 value Quantity!, 2 requestPolicy CapacityRequestPolicy?
DeviceClaim
    1 requests [DeviceRequest]!, 2 constraints [DeviceConstraint],
    3 config [DeviceClaimConfiguration]
DeviceClaimConfiguration
    1 requests [text], 2 . DeviceConfiguration
DeviceConfiguration
    1 opaque OpaqueDeviceConfiguration?
DeviceConstraint
    1 requests [text], 2 matchAttribute text?, 3 distinctAttribute text?
DeviceCounterConsumption
    1 counterSet text!, 2 counters {Counter}
DeviceRequest
    1 name text!, 2 exactly ExactDeviceRequest?, 3 firstAvailable [DeviceSubRequest]
DeviceRequestAllocationResult
    1 request text!, 2 driver text!, 3 pool text!, 4 device text!, 5 adminAccess flag?,
    6 tolerations [DeviceToleration], 7 bindingConditions [text],
    8 bindingFailureConditions [text], 9 shareID text?, 10 consumedCapacity {Quantity}
DeviceSelector
    1 cel CELDeviceSelector?
DeviceSubRequest
    1 name text!, 2 deviceClassName text!, 3 selectors [DeviceSelector], 4 allocationMode text,
    5 count int, 6 tolerations [DeviceToleration], 7 capacity CapacityRequirements?
DeviceTaint
    1 key text!, 2 value text, 3 effect text!, 4 timeAdded Time?
DeviceToleration
    1 key text, 2 operator text, 3 value text, 4 effect text, 5 tolerationSeconds int?
Event
    1 metadata ObjectMeta!, 2 involvedObject ObjectReference!, 3 reason text, 4 message text,
    5 source EventSource, 6 firstTimestamp Time, 7 lastTimestamp Time, 8 count int, 9 type text,
    10 eventTime MicroTime, 11 series EventSeries?, 12 action text, 13 related ObjectReference?,
    14 reportingComponent text!, 15 reportingInstance text!
EventSeries
    1 count int, 2 lastObservedTime MicroTime
EventSource
    1 component text, 2 host text
ExactDeviceRequest
    1 deviceClassName text!, 2 selectors [DeviceSelector], 3 allocationMode text, 4 count int,
    5 adminAccess flag?, 6 tolerations [DeviceToleration], 7 capacity CapacityRequirements?
Lease
    1 metadata ObjectMeta, 2 spec LeaseSpec
LeaseSpec
    1 holderIdentity text?, 2 leaseDurationSeconds int?, 3 acquireTime MicroTime?,
    4 renewTime MicroTime?, 5 leaseTransitions int?, 6 strategy text?, 7 preferredHolder text?
NetworkDeviceData
    1 interfaceName text, 2 ips [text], 3 hardwareAddress text
NodeAllocatableResourceMapping
    1 capacityKey text?, 2 allocationMultiplier Quantity?
NodeSelector
    1 nodeSelectorTerms [NodeSelectorTerm]!
NodeSelectorRequirement
    1 key text!, 2 operator text!, 3 values [text]
NodeSelectorTerm
    1 matchExpressions [NodeSelectorRequirement], 2 matchFields [NodeSelectorRequirement]
ObjectMeta
    1 name text, 2 generateName text, 3 namespace text, 5 uid text, 6 resourceVersion text,
    7 generation int, 8 creationTimestamp Time, 9 deletionTimestamp Time?,
    10 deletionGracePeriodSeconds int?, 11 labels {text}, 12 annotations {text},
    13 ownerReferences [OwnerReference], 14 finalizers [text]
ObjectReference
    1 kind text, 2 namespace text, 3 name text, 4 uid text, 5 apiVersion text,
    6 resourceVersion text, 7 fieldPath text
OpaqueDeviceConfiguration
    1 driver text!, 2 parameters RawExtension!
OwnerReference
    5 apiVersion text!, 1 kind text!, 3 name text!, 4 uid text!, 6 controller flag?,
    7 blockOwnerDeletion flag?
Preconditions
    1 uid text?, 2 resourceVersion text?
ResourceClaim
    1 metadata ObjectMeta, 2 spec ResourceClaimSpec!, 3 status ResourceClaimStatus
ResourceClaimConsumerReference
    1 apiGroup text, 3 resource text!, 4 name text!, 5 uid text!
ResourceClaimSpec
    1 devices DeviceClaim!
ResourceClaimStatus
    1 allocation AllocationResult?, 2 reservedFor [ResourceClaimConsumerReference],
    4 devices [AllocatedDeviceStatus]
ResourcePool
    1 name text!, 2 generation int!, 3 resourceSliceCount int!
ResourceSlice
    1 metadata ObjectMeta, 2 spec ResourceSliceSpec!
ResourceSliceSpec
    1 driver text!, 2 pool ResourcePool!, 3 nodeName text?, 4 nodeSelector NodeSelector?,
    5 allNodes flag?, 6 devices [Device], 7 perDeviceNodeSelection flag?,
    8 sharedCounters [CounterSet]
"""
