"""What goes over the sockets; the only place that sees HTTP/2, gRPC and protobuf.

From the values down to the bytes; each line uses only lines below it:

services           offer one of our objects as a gRPC service
clients            call the other side: values in, values out
proxy_client       asks a proxy of ours what is behind it
kubelet_devices    what a kubelet says by podresources, as `kubedevices devices` shows it
dra_client         call a DRA driver as a kubelet does
dra                what a kubelet asks of a DRA driver
pod_resources      the podresources API: values, messages, service and client
message_json       the messages of device plugins ⇄ the JSON of protobuf
convert            messages ⇄ our values
device_lists       lists of devices from bytes, a few devices at a time
protobuf           messages field by field, as bytes

unix_grpc          the two ends everybody uses: GrpcServer and GrpcChannel
grpc_server        answers calls on a socket file
grpc_channel       dials a socket file and calls
grpc_link          one connected socket, driving one of the following without I/O
server_connection  the answering role
client_connection  the calling role
grpc_connection    what both share: gRPC over HTTP/2, bytes in, events and bytes out
grpc_events        a call, its limits, and what is reported about it
grpc_headers       methods, timeouts and statuses as headers
grpc_framing       messages in a byte stream
http2_session      HTTP/2 without I/O: received bytes, the states of streams
http2_output       the half of it that sends
hpack              header blocks ⇄ header fields
huffman            the code of strings in header blocks
header_block       whether HTTP/2 allows the fields of a block
http2_limits       what a peer may make us keep, and do for nothing
http2_frames       frames as bytes
acceptor           takes connections on a listening socket
unix_socket        socket files: whose is it, bind, rename, unlink
"""
