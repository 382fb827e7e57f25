"""The kubelet's gRPC APIs: messages, services and clients. Python values ⇄ bytes for `wire`.

The APIs are: device plugins, their registration, podresources and DRA. The control service of our
node and the state service of our proxy are here too: they use JSON instead of protobuf.
The list goes from calls down to fields:

services         makes gRPC services from objects that implement a Protocol
clients          clients of device plugins, of registration and of our JSON services
cordon           asks our plugins whether they follow the list of cordoned devices
proxy_client     asks a `kubedevices proxy` for the plugins behind it
kubelet_devices  the kubelet's podresources answers, as `kubedevices devices` shows them
dra_client       calls a DRA driver, as the kubelet does
dra              messages and service of a DRA driver
pod_resources    the podresources API: values, messages, service and client
message_json     messages of the device plugin API ⇄ protobuf's JSON
convert          messages of the device plugin API ⇄ values: the table of all fields
device_lists     decodes ListAndWatch messages, a few devices at a time
protobuf         the encoding of protobuf, field by field
"""
