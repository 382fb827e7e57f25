"""The APIs of the kubelet: messages, services and clients; values on our side, bytes for `wire`.

Device plugins, their registration, podresources and DRA. The control service of our node and the
state of our proxy are here, too: JSON instead of protobuf, in the same calls.
From the calls down to the fields; each line uses only lines below it:

services         offer one of our objects as a gRPC service
clients          call the other side: values in, values out
proxy_client     asks a proxy of ours what is behind it
kubelet_devices  what a kubelet says by podresources, as `kubedevices devices` shows it
dra_client       call a DRA driver as a kubelet does
dra              what a kubelet asks of a DRA driver
pod_resources    the podresources API: values, messages, service and client
message_json     the messages of device plugins ⇄ the JSON of protobuf
convert          messages ⇄ our values
device_lists     lists of devices from bytes, a few devices at a time
protobuf         messages field by field, as bytes
"""
